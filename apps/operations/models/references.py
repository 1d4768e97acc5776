"""References of unfinished operations to datasets and trained models."""

from django.db import models

from apps.operations.lifecycle import ACTIVE


class DatasetUse(models.Model):
    """An operation reads a dataset: it cannot be deleted before the operation has ended."""

    operation = models.ForeignKey("operations.Operation", models.CASCADE, related_name="datasets")
    dataset_id = models.CharField(max_length=32, db_index=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["operation", "dataset_id"], name="one_use_per_dataset")
        ]

    def __str__(self) -> str:
        return self.dataset_id

    @classmethod
    def active_users_of(cls, dataset_id: str) -> list[str]:
        """Return the operations that are not finished and read it."""
        uses = cls.objects.filter(dataset_id=dataset_id, operation__state__in=ACTIVE)
        return list(uses.values_list("operation_id", flat=True))


class ModelUse(models.Model):
    """An operation uses the model that another trained: it stays until the operation has ended."""

    operation = models.ForeignKey(
        "operations.Operation", models.CASCADE, related_name="models_used"
    )
    source = models.ForeignKey("operations.Operation", models.CASCADE, related_name="model_users")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["operation", "source"], name="one_use_per_model")
        ]

    def __str__(self) -> str:
        return self.source_id

    @classmethod
    def active_users_of(cls, source_id: str) -> list[str]:
        """Return the operations that are not finished and use its model."""
        uses = cls.objects.filter(source_id=source_id, operation__state__in=ACTIVE)
        return list(uses.values_list("operation_id", flat=True))
