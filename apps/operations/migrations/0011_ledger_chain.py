from django.db import migrations, models

from apps.operations.migrations import _privacy_ledger as ledger

BATCH = 1000


def chain_entries(apps, schema_editor):
    """Give the entries that there are their numbers and digests, as if made in their order."""
    accounts = apps.get_model("operations", "PrivacyAccount").objects
    entries = apps.get_model("operations", "PrivacyEntry").objects
    written = set(entries.values_list("operation_id", flat=True).distinct())
    # No service leaves entries without an account; its secret could be any.
    for operation_id in written - set(accounts.values_list("pk", flat=True)):
        accounts.create(pk=operation_id, secret="")
    for account in accounts.iterator():
        account.head = ledger.beginning(account.secret, account.pk, account.ancestors)
        changed = []
        for entry in entries.filter(operation_id=account.pk).order_by("id").iterator():
            account.entries += 1
            entry.number = account.entries
            entry.digest = account.head = ledger.digest(
                account.secret, account.head, number=entry.number, attempt=entry.attempt,
                released_at=entry.released_at,
                values=[getattr(entry, name) for name in ledger.FIELDS],
            )  # fmt: skip
            changed.append(entry)
            if len(changed) == BATCH:
                entries.bulk_update(changed, ["number", "digest"], batch_size=200)
                changed = []
        entries.bulk_update(changed, ["number", "digest"], batch_size=200)
        account.save(update_fields=["entries", "head"])


def guard(apps, schema_editor):
    for statement in ledger.CREATE[schema_editor.connection.vendor]:
        schema_editor.execute(statement)


def let_go(apps, schema_editor):
    for statement in ledger.DROP[schema_editor.connection.vendor]:
        schema_editor.execute(statement)


class Migration(migrations.Migration):
    dependencies = [("operations", "0010_takes_slot")]

    operations = [
        migrations.AddField(
            "privacyaccount",
            "entries",
            models.PositiveBigIntegerField(default=0, help_text='Number of entries in the ledger.'),
        ),
        migrations.AddField(
            "privacyaccount",
            "head",
            models.CharField(
                default="", max_length=64, help_text='Digest of the latest entry.'
            ),
        ),
        migrations.AddField(
            "privacyentry",
            "number",
            models.PositiveBigIntegerField(
                null=True, help_text='Position in the ledger, from 1.'
            ),
        ),
        migrations.AddField(
            "privacyentry",
            "digest",
            models.CharField(
                default="", max_length=64, help_text='Digest of the fields and the previous digest.'
            ),
            preserve_default=False,
        ),
        migrations.RunPython(chain_entries, migrations.RunPython.noop),
        migrations.AlterField(
            "privacyentry",
            "number",
            models.PositiveBigIntegerField(help_text='Position in the ledger, from 1.'),
        ),
        migrations.AddConstraint(
            "privacyentry",
            models.UniqueConstraint(fields=["operation_id", "number"], name="one_entry_per_number"),
        ),
        migrations.RunPython(guard, let_go),
    ]
