from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("checkpoints", "0003_availability")]

    operations = [
        migrations.AddField(
            model_name="checkpoint",
            name="best_of",
            field=models.JSONField(
                blank=True,
                default=list,
                help_text="Further monitored metrics by which it is the best checkpoint.",
            ),
        ),
    ]
