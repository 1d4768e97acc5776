import hashlib
import json

import django.db.models.deletion
from django.db import migrations, models


def describe_clients(apps, schema_editor):
    """Until now every subtask was a client of a round, described by its local epochs."""
    Subtask = apps.get_model("operations", "Subtask")
    for row in Subtask.objects.using(schema_editor.connection.alias).iterator():
        row.spec = {"epochs": row.num_steps}
        row.identity = _identity(row)
        row.save(update_fields=["spec", "identity"])


def _identity(row):
    """What `trainops.runtime.subtasks.Subtask.identity` was at this migration."""
    values = [row.spec, row.num_steps, row.begins_with]
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class Migration(migrations.Migration):

    dependencies = [
        ("operations", "0015_outbox"),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name="clientpart",
            name="one_part_per_client_and_model",
        ),
        migrations.RenameModel("ClientPart", "Subtask"),
        migrations.RenameField("subtask", "server", "parent"),
        migrations.RenameField("subtask", "round", "group"),
        migrations.RenameField("subtask", "client", "index"),
        migrations.RenameField("subtask", "epochs", "num_steps"),
        migrations.AlterField(
            model_name="subtask",
            name="operation",
            field=models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name="subtask", serialize=False, to="operations.operation"),
        ),
        migrations.AlterField(
            model_name="subtask",
            name="parent",
            field=models.ForeignKey(on_delete=django.db.models.deletion.RESTRICT, related_name="subtasks", to="operations.operation"),
        ),
        migrations.AlterField(
            model_name="subtask",
            name="group",
            field=models.PositiveBigIntegerField(help_text="Subtasks of one group start together."),
        ),
        migrations.AlterField(
            model_name="subtask",
            name="index",
            field=models.PositiveIntegerField(help_text="Order within the group."),
        ),
        migrations.AlterField(
            model_name="subtask",
            name="num_steps",
            field=models.PositiveIntegerField(help_text="Maximum number of steps."),
        ),
        migrations.AlterField(
            model_name="subtask",
            name="begins_with",
            field=models.CharField(help_text="Identity of the initial state.", max_length=64),
        ),
        migrations.AlterField(
            model_name="subtask",
            name="given_id",
            field=models.CharField(help_text="Checkpoint of the parent with the initial state; kept until the subtask ends.", max_length=64),
        ),
        migrations.AddField(
            model_name="subtask",
            name="spec",
            field=models.JSONField(default=dict, help_text="JSON values that the kind interprets."),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name="subtask",
            name="identity",
            field=models.CharField(default="", help_text="Digest of the spec, the steps and the initial state.", max_length=64),
            preserve_default=False,
        ),
        migrations.RunPython(describe_clients, migrations.RunPython.noop, elidable=True),
        migrations.AddConstraint(
            model_name="subtask",
            constraint=models.UniqueConstraint(fields=("parent", "group", "index", "identity"), name="one_row_per_subtask"),
        ),
        migrations.AlterField(
            model_name='attempt',
            name='reason',
            field=models.CharField(blank=True, choices=[('', ''), ('CANCELLED_BY_PERSON', 'cancelled by a user'), ('KILLED_BY_PERSON', 'killed by a user'), ('CANCEL_TIMEOUT', 'killed: no safe point before the cancel timeout'), ('SHUTDOWN', 'the worker was stopped'), ('DROPPED', 'the parent proceeded without this subtask'), ('WORKER_LOST', 'the worker stopped responding'), ('LEASE_LOST', 'the attempt lost its lease'), ('PROCESS_KILLED', 'the process was killed'), ('SEGMENTATION_FAULT', 'the process crashed'), ('OUT_OF_MEMORY', 'out of memory'), ('NON_FINITE_LOSS', 'the loss became NaN or infinite'), ('STALLED', 'no progress'), ('TIME_LIMIT', 'the time limit was reached'), ('JOB_ERROR', 'the recipe raised an exception'), ('INPUT_ERROR', 'the data does not fit the config'), ('CHECKPOINT_CORRUPTED', 'no checkpoint is intact'), ('STORAGE_ERROR', 'the checkpoint could not be stored'), ('PRIVACY_BUDGET', 'the privacy budget is spent'), ('PRIVACY_LEDGER_MISMATCH', 'the checkpoint contradicts the privacy ledger'), ('HOUSE_ERROR', 'internal error of the platform')], max_length=24),
        ),
        migrations.AlterField(
            model_name='operation',
            name='reason',
            field=models.CharField(blank=True, choices=[('', ''), ('CANCELLED_BY_PERSON', 'cancelled by a user'), ('KILLED_BY_PERSON', 'killed by a user'), ('CANCEL_TIMEOUT', 'killed: no safe point before the cancel timeout'), ('SHUTDOWN', 'the worker was stopped'), ('DROPPED', 'the parent proceeded without this subtask'), ('WORKER_LOST', 'the worker stopped responding'), ('LEASE_LOST', 'the attempt lost its lease'), ('PROCESS_KILLED', 'the process was killed'), ('SEGMENTATION_FAULT', 'the process crashed'), ('OUT_OF_MEMORY', 'out of memory'), ('NON_FINITE_LOSS', 'the loss became NaN or infinite'), ('STALLED', 'no progress'), ('TIME_LIMIT', 'the time limit was reached'), ('JOB_ERROR', 'the recipe raised an exception'), ('INPUT_ERROR', 'the data does not fit the config'), ('CHECKPOINT_CORRUPTED', 'no checkpoint is intact'), ('STORAGE_ERROR', 'the checkpoint could not be stored'), ('PRIVACY_BUDGET', 'the privacy budget is spent'), ('PRIVACY_LEDGER_MISMATCH', 'the checkpoint contradicts the privacy ledger'), ('HOUSE_ERROR', 'internal error of the platform')], max_length=24),
        ),
    ]
