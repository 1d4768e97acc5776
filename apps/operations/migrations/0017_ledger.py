"""Move the privacy ledger into the tables of apps.ledger, which serve every kind.

The digests are taken over the same texts, so they are copied, not computed: a chain that was broken
stays broken where it was. The copy of a chain that was not is verified.
"""

import logging
import math

from django.db import migrations

from apps.ledger import guards
from apps.operations.migrations import _privacy_ledger as before

BATCH = 1000
VALUES = before.FIELDS[2:]  # without the identity and the step, which have columns of their own
logger = logging.getLogger(__name__)


def batches(entries, **where):
    """Yield all rows in the order in which they were written, a batch at a time."""
    last = 0
    while rows := list(entries.filter(pk__gt=last, **where).order_by("pk")[:BATCH]):
        yield rows
        last = rows[-1].pk


def copy(apps, schema_editor):
    old = apps.get_model("operations", "PrivacyEntry").objects
    new = apps.get_model("ledger", "LedgerEntry")
    accounts = apps.get_model("ledger", "LedgerAccount")
    old_accounts = apps.get_model("operations", "PrivacyAccount").objects
    accounts.objects.bulk_create(
        (
            accounts(pk=each.pk, secret=each.secret, ancestors=each.ancestors,
                     num_entries=each.entries, head=each.head)
            for each in old_accounts.iterator()
        ),
        batch_size=BATCH,
    )  # fmt: skip
    for rows in batches(old):
        new.objects.bulk_create([copied(new, row) for row in rows], batch_size=200)
    for account in old_accounts.order_by("pk").iterator():
        verify(account, old, new.objects)


def copied(model, row):
    # JSON has no such number. No service wrote one: its entry was changed, and stays so.
    values = {name: finite(getattr(row, name)) for name in VALUES}
    return model(
        operation_id=row.operation_id, attempt=row.attempt, number=row.number, identity=row.noise,
        step=row.step, values=values, digest=row.digest, recorded_at=row.released_at,
        subtask_group=None if row.client is None else row.round, subtask_index=row.client,
    )  # fmt: skip


def finite(value):
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def verify(account, old, new):
    """Compare where the chains of an account end before and after. Raises RuntimeError."""
    was = followed(account, rows_before(account, old))
    now = followed(account, rows_after(account, new))
    if now != was:
        raise RuntimeError(f"the ledger of {account.pk} was not copied: {was} became {now}")
    if was != (account.entries, account.head or beginning(account)):
        logger.warning("The ledger of %s was modified before this migration.", account.pk)


def beginning(account):
    return before.beginning(account.secret, account.pk, account.ancestors)


def rows_before(account, entries):
    found = entries.filter(operation_id=account.pk).order_by("number").iterator(BATCH)
    for row in found:
        values = [getattr(row, name) for name in before.FIELDS]
        yield row.number, row.attempt, row.released_at, row.digest, values


def rows_after(account, entries):
    found = entries.filter(operation_id=account.pk).order_by("number").iterator(BATCH)
    for row in found:
        values = [row.identity, row.step, *(row.values[name] for name in VALUES)]
        yield row.number, row.attempt, row.recorded_at, row.digest, values


def followed(account, rows):
    """Return how many rows follow from one another, and the digest of the last of them."""
    count, head = 0, beginning(account)
    for number, attempt, moment, digest, values in rows:
        try:
            found = before.digest(
                account.secret, head, number=number, attempt=attempt, released_at=moment,
                values=values,
            )  # fmt: skip
        except (TypeError, ValueError):
            break
        if number != count + 1 or found != digest:
            break
        count, head = number, digest
    return count, head


def copy_back(apps, schema_editor):
    """Copy all entries into the tables of before, and empty those of now."""
    old = apps.get_model("operations", "PrivacyEntry")
    new = apps.get_model("ledger", "LedgerEntry").objects
    accounts = apps.get_model("ledger", "LedgerAccount").objects
    old_accounts = apps.get_model("operations", "PrivacyAccount")
    for rows in batches(new):
        if other := [each.operation_id for each in rows if set(each.values) != set(VALUES)]:
            raise RuntimeError(f"the ledger of {other[0]} is of a kind that had none before")
        old.objects.bulk_create([restored(old, row) for row in rows], batch_size=200)
    old_accounts.objects.bulk_create(
        (
            old_accounts(pk=each.pk, secret=each.secret, ancestors=each.ancestors,
                         entries=each.num_entries, head=each.head)
            for each in accounts.iterator()
        ),
        batch_size=BATCH,
    )  # fmt: skip
    vendor = schema_editor.connection.vendor
    accounts.all().delete()
    for statement in guards.DROP[vendor]:
        schema_editor.execute(statement)
    new.all().delete()
    for statement in (*guards.CREATE[vendor], *before.CREATE[vendor]):
        schema_editor.execute(statement)


def restored(model, row):
    return model(
        operation_id=row.operation_id, attempt=row.attempt, number=row.number, noise=row.identity,
        step=row.step, digest=row.digest, released_at=row.recorded_at, **row.values,
    )  # fmt: skip


def drop_guards(apps, schema_editor):
    for statement in before.DROP[schema_editor.connection.vendor]:
        schema_editor.execute(statement)


class Migration(migrations.Migration):
    dependencies = [("operations", "0016_subtasks"), ("ledger", "0001_initial")]

    operations = [
        migrations.RunPython(copy, copy_back),
        migrations.RunPython(drop_guards, migrations.RunPython.noop),
        migrations.DeleteModel("PrivacyAccount"),
        migrations.DeleteModel("PrivacyEntry"),
    ]
