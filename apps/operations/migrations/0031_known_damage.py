from django.db import migrations


def fill_in(apps, schema_editor):
    """Raise the concern about checkpoints that are known to be altered."""
    checkpoints = apps.get_model("checkpoints", "Checkpoint").objects.filter(health="corrupted")
    damaged = set(checkpoints.values_list("operation_id", flat=True))
    operations = apps.get_model("operations", "Operation").objects
    for pk in damaged:
        operations.filter(pk=pk, concerns="").update(concerns="CORRUPTED")


class Migration(migrations.Migration):

    dependencies = [
        ("operations", "0030_concerns"),
        ("checkpoints", "0003_availability"),
    ]

    operations = [migrations.RunPython(fill_in, migrations.RunPython.noop)]
