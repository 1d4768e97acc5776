from django.db import migrations, models

import trainops.clock
from apps.ledger import guards


def guard(apps, schema_editor):
    for statement in guards.CREATE[schema_editor.connection.vendor]:
        schema_editor.execute(statement)


def unguard(apps, schema_editor):
    for statement in guards.DROP[schema_editor.connection.vendor]:
        schema_editor.execute(statement)


class Migration(migrations.Migration):
    initial = True
    dependencies = []

    operations = [
        migrations.CreateModel(
            name="LedgerAccount",
            fields=[
                ("operation_id", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("secret", models.CharField(help_text="Secret in hexadecimal; never leaves the server.", max_length=64)),
                ("ancestors", models.JSONField(default=list, help_text="Operations it was forked from, oldest first.")),
                ("num_entries", models.PositiveBigIntegerField(default=0, help_text="Number of entries in the ledger.")),
                ("head", models.CharField(default="", help_text="Digest of the latest entry.", max_length=64)),
            ],
        ),
        migrations.CreateModel(
            name="LedgerEntry",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("operation_id", models.CharField(max_length=64)),
                ("attempt", models.PositiveIntegerField()),
                ("number", models.PositiveBigIntegerField(help_text="Position in the ledger, from 1.")),
                ("identity", models.CharField(help_text="Identity of the entry.", max_length=64)),
                ("step", models.PositiveBigIntegerField()),
                ("values", models.JSONField(help_text="Values of the kind's fields.")),
                ("subtask_group", models.PositiveBigIntegerField(null=True)),
                ("subtask_index", models.PositiveBigIntegerField(null=True)),
                ("digest", models.CharField(help_text="Digest of the values and the previous digest.", max_length=64)),
                ("recorded_at", models.DateTimeField(db_default=trainops.clock.DatabaseNow())),
            ],
            options={"ordering": ["id"]},
        ),
        migrations.AddIndex(
            "ledgerentry",
            models.Index(
                condition=models.Q(("subtask_group__isnull", False)),
                fields=["operation_id", "subtask_group", "subtask_index"],
                name="ledger_subtask",
            ),
        ),
        migrations.AddConstraint(
            "ledgerentry",
            models.UniqueConstraint(fields=("operation_id", "identity"), name="ledger_identity"),
        ),
        migrations.AddConstraint(
            "ledgerentry",
            models.UniqueConstraint(fields=("operation_id", "number"), name="ledger_number"),
        ),
        migrations.RunPython(guard, unguard),
    ]
