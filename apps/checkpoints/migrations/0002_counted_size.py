from django.db import migrations, models
from django.db.models import F


def fill_in(apps, schema_editor):
    """Until now no checkpoint shared a file with another."""
    checkpoints = apps.get_model("checkpoints", "Checkpoint").objects
    checkpoints.update(counted_size_bytes=F("artifacts_size_bytes"))


class Migration(migrations.Migration):
    dependencies = [("checkpoints", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="checkpoint",
            name="counted_size_bytes",
            field=models.PositiveBigIntegerField(
                default=0,
                help_text=(
                    'Size of the artifacts; a shared file counts with the oldest checkpoint.'
                ),
            ),
        ),
        migrations.AlterField(
            model_name="checkpoint",
            name="manifest",
            field=models.JSONField(help_text='name, size_bytes, blake3 and home of each file'),
        ),
        migrations.RunPython(fill_in, migrations.RunPython.noop),
    ]
