"""Latest values of metrics in rows of their own, which an index orders."""

from django.db import models


class LatestValue(models.Model):
    """The latest finite value of a metric of an operation that has ended.

    A copy of what `Operation.metrics` holds, if `Operation.values_of_attempt` is its attempt;
    else left from an earlier attempt, and not read.
    """

    operation = models.ForeignKey(
        "operations.Operation", models.CASCADE, related_name="latest_values", db_index=False
    )
    name = models.CharField(max_length=64)
    value = models.FloatField()

    class Meta:
        ordering = ["operation", "name"]
        indexes = [models.Index(fields=["name", "value", "operation"], name="values_in_order")]
        constraints = [
            models.UniqueConstraint(fields=["operation", "name"], name="one_value_per_metric")
        ]

    def __str__(self) -> str:
        return f"{self.name}={self.value}"
