"""The reason of a state in the event of the move to it, for notification rules."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("operations", "0046_past_seconds"),
    ]

    operations = [
        migrations.AddField(
            model_name="event",
            name="reason",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="Reason of the new state.",
                max_length=24,
            ),
        ),
    ]
