from django.db import migrations


def fill_in(apps, schema_editor):
    """What a claim looked up in the config of each row is a column now."""
    operations = apps.get_model("operations", "Operation").objects
    for device in ("cpu", "cuda"):
        operations.filter(config__device=device).update(device=device)


class Migration(migrations.Migration):
    dependencies = [("operations", "0002_placement")]

    operations = [migrations.RunPython(fill_in, migrations.RunPython.noop)]
