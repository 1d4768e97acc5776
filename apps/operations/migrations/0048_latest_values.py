"""Latest values of metrics as rows that an index orders; the sweep writes those of ended operations.

Processes of earlier versions need to do nothing: what they claim gets a new attempt, whose values
are read from the operation until the next sweep.
"""

from django.db import migrations, models
from django.db.models import CASCADE, F, Q


class Migration(migrations.Migration):
    dependencies = [
        ("operations", "0047_event_reason"),
    ]

    operations = [
        migrations.AddField(
            model_name="operation",
            name="values_of_attempt",
            field=models.PositiveIntegerField(
                db_default=0,
                default=0,
                help_text="Attempt whose latest metrics have rows of their own.",
            ),
        ),
        migrations.AddIndex(
            model_name="operation",
            index=models.Index(
                condition=Q(values_of_attempt__lt=F("attempt")),
                fields=["state", "id"],
                name="operation_lacks_values",
            ),
        ),
        migrations.CreateModel(
            name="LatestValue",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "operation",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=CASCADE,
                        related_name="latest_values",
                        to="operations.operation",
                    ),
                ),
                ("name", models.CharField(max_length=64)),
                ("value", models.FloatField()),
            ],
            options={
                "ordering": ["operation", "name"],
                "indexes": [
                    models.Index(fields=["name", "value", "operation"], name="values_in_order")
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=["operation", "name"], name="one_value_per_metric"
                    )
                ],
            },
        ),
    ]
