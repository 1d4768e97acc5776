"""The compute time of deleted trials counts for the limit of their study."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("operations", "0045_uses_datasets"),
    ]

    operations = [
        migrations.AddField(
            model_name="study",
            name="past_seconds",
            field=models.FloatField(
                db_default=0, default=0, help_text="Compute time of deleted trials."
            ),
        ),
    ]
