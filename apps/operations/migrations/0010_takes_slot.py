from django.db import migrations, models


def fill_in(apps, schema_editor):
    """Those that wait for clients elsewhere no longer keep them out of a slot."""
    servers = apps.get_model("operations", "Operation").objects.filter(
        kind="federated", config__placement="distributed", part=None
    )
    servers.update(takes_slot=False)


class Migration(migrations.Migration):
    dependencies = [("operations", "0009_servers_keep_their_clients")]

    operations = [
        migrations.AddField(
            "operation",
            "takes_slot",
            models.BooleanField(
                default=True, db_default=True, help_text='Whether it occupies a slot; coordinators do not.'
            ),
        ),
        migrations.RunPython(fill_in, migrations.RunPython.noop),
    ]
