from django.db import migrations, models

TELLING = ("equal", "differs", "not_loaded")


def take_over(apps, schema_editor):
    """Give each operation the newest result that its attempts' receipts have."""
    operations = apps.get_model("operations", "Operation").objects
    attempts = apps.get_model("operations", "Attempt").objects
    checked = attempts.filter(receipt__self_check__verdict__in=TELLING).order_by("number")
    for operation_id, verdict in checked.values_list(
        "operation_id", "receipt__self_check__verdict"
    ).iterator():
        operations.filter(pk=operation_id).update(self_check=verdict)


class Migration(migrations.Migration):
    dependencies = [("operations", "0012_active_operations_of_a_person")]

    operations = [
        migrations.AddField(
            "operation",
            "self_check",
            models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text='Result of the latest self-check: equal, differs or not_loaded.',
                max_length=16,
            ),
        ),
        migrations.RunPython(take_over, migrations.RunPython.noop),
        migrations.AddIndex(
            "operation",
            models.Index(fields=["self_check"], name="operation_self_check"),
        ),
    ]
