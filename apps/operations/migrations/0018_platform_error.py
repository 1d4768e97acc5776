from django.db import migrations, models

OLD, NEW = "HOUSE_ERROR", "PLATFORM_ERROR"


def rename(apps, schema_editor):
    _replace(apps, schema_editor, OLD, NEW)


def rename_back(apps, schema_editor):
    _replace(apps, schema_editor, NEW, OLD)


def _replace(apps, schema_editor, old, new):
    database = schema_editor.connection.alias
    operations = apps.get_model("operations", "Operation").objects.using(database)
    attempts = apps.get_model("operations", "Attempt").objects.using(database)
    attempts.filter(reason=old).update(reason=new)
    operations.filter(reason=old).update(reason=new)
    for pk, error in list(operations.filter(error__code=old).values_list("pk", "error")):
        operations.filter(pk=pk).update(error={**error, "code": new})


class Migration(migrations.Migration):

    dependencies = [
        ("operations", "0017_ledger"),
    ]

    operations = [
        migrations.RunPython(rename, rename_back),
        migrations.AlterField(
            model_name="attempt",
            name="reason",
            field=models.CharField(blank=True, choices=[("", ""), ("CANCELLED_BY_PERSON", "cancelled by a user"), ("KILLED_BY_PERSON", "killed by a user"), ("CANCEL_TIMEOUT", "killed: no safe point before the cancel timeout"), ("SHUTDOWN", "the worker was stopped"), ("DROPPED", "the parent proceeded without this subtask"), ("WORKER_LOST", "the worker stopped responding"), ("LEASE_LOST", "the attempt lost its lease"), ("PROCESS_KILLED", "the process was killed"), ("SEGMENTATION_FAULT", "the process crashed"), ("OUT_OF_MEMORY", "out of memory"), ("NON_FINITE_LOSS", "the loss became NaN or infinite"), ("STALLED", "no progress"), ("TIME_LIMIT", "the time limit was reached"), ("JOB_ERROR", "the recipe raised an exception"), ("INPUT_ERROR", "the data does not fit the config"), ("CHECKPOINT_CORRUPTED", "no checkpoint is intact"), ("STORAGE_ERROR", "the checkpoint could not be stored"), ("PRIVACY_BUDGET", "the privacy budget is spent"), ("PRIVACY_LEDGER_MISMATCH", "the checkpoint contradicts the privacy ledger"), ("PLATFORM_ERROR", "internal error of the platform")], max_length=24),
        ),
        migrations.AlterField(
            model_name="operation",
            name="reason",
            field=models.CharField(blank=True, choices=[("", ""), ("CANCELLED_BY_PERSON", "cancelled by a user"), ("KILLED_BY_PERSON", "killed by a user"), ("CANCEL_TIMEOUT", "killed: no safe point before the cancel timeout"), ("SHUTDOWN", "the worker was stopped"), ("DROPPED", "the parent proceeded without this subtask"), ("WORKER_LOST", "the worker stopped responding"), ("LEASE_LOST", "the attempt lost its lease"), ("PROCESS_KILLED", "the process was killed"), ("SEGMENTATION_FAULT", "the process crashed"), ("OUT_OF_MEMORY", "out of memory"), ("NON_FINITE_LOSS", "the loss became NaN or infinite"), ("STALLED", "no progress"), ("TIME_LIMIT", "the time limit was reached"), ("JOB_ERROR", "the recipe raised an exception"), ("INPUT_ERROR", "the data does not fit the config"), ("CHECKPOINT_CORRUPTED", "no checkpoint is intact"), ("STORAGE_ERROR", "the checkpoint could not be stored"), ("PRIVACY_BUDGET", "the privacy budget is spent"), ("PRIVACY_LEDGER_MISMATCH", "the checkpoint contradicts the privacy ledger"), ("PLATFORM_ERROR", "internal error of the platform")], max_length=24),
        ),
    ]
