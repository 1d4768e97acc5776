"""Extremes of metrics: null for operations of earlier versions, which the clean-up counts."""

from django.db import migrations, models

HELP = "Lowest and highest finite value of each metric; null: not counted yet."


class Migration(migrations.Migration):
    dependencies = [("operations", "0028_packed_points")]

    operations = [
        migrations.AddField(
            model_name="operation",
            name="extremes",
            field=models.JSONField(null=True, blank=True, help_text=HELP),
        ),
        migrations.AlterField(
            model_name="operation",
            name="extremes",
            field=models.JSONField(default=dict, null=True, blank=True, help_text=HELP),
        ),
    ]
