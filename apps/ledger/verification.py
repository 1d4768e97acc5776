"""Read the rows of a ledger and follow their chain."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from apps.ledger import chain
from apps.ledger.errors import LedgerBroken
from apps.ledger.models import AppendOnlyQuerySet, LedgerAccount, LedgerEntry
from trainops.runtime.ledger import Entry, Value
from trainops.runtime.ledger_fields import LedgerFields


class EntryRow(NamedTuple):
    """An entry as the database gives it."""

    pk: int
    operation_id: str
    number: int
    attempt: int
    recorded_at: datetime
    digest: str
    identity: str
    step: int
    values: Mapping[str, Value]
    subtask_group: int | None
    subtask_index: int | None


def rows_of(operation_id: str) -> list[EntryRow]:
    """Return the operation's own rows in the order of the chain."""
    return _rows(LedgerEntry.objects.filter(operation_id=operation_id).order_by("number"))


def rows_where(operation_id: str, *, group: int, index: int) -> list[EntryRow]:
    """Return the operation's own rows of one subtask in the order of the chain.

    They are sorted here: to sort them, SQLite would read the whole ledger by another index.
    """
    found = LedgerEntry.objects.filter(
        operation_id=operation_id, subtask_group=group, subtask_index=index
    )
    return sorted(_rows(found.order_by()), key=lambda row: row.number)


def _rows(found: AppendOnlyQuerySet) -> list[EntryRow]:
    return [EntryRow._make(each) for each in found.values_list(*EntryRow._fields)]


def entry_of(row: EntryRow, fields: LedgerFields, *, is_own: bool = True) -> Entry:
    """Return the entry of a row whose digest was verified."""
    values = fields.stored(row.values)
    return Entry(identity=row.identity, step=row.step, values=values, is_own=is_own)


def followed(operation_id: str, fields: LedgerFields) -> Iterator[EntryRow]:
    """Yield the rows of the operation and its ancestors, each ledger by its chain.

    Raises LedgerBroken.
    """
    account = LedgerAccount.objects.filter(pk=operation_id).first()
    for owner in [*(account.ancestors if account else []), operation_id]:
        yield from _chain_of(owner, fields)


def _chain_of(owner: str, fields: LedgerFields) -> list[EntryRow]:
    """Return the rows of one operation, if they are as they were written."""
    # The account first: entries that are appended meanwhile are more than it knows of.
    account = LedgerAccount.objects.filter(pk=owner).first()
    found = rows_of(owner)
    if account is None:
        if found:
            raise LedgerBroken(owner, "its account is missing")
        return []
    previous = account.beginning
    for number, row in enumerate(found, start=1):
        if row.number != number:
            raise LedgerBroken(owner, f"entry {number} is missing")
        require_digest(account, previous, row, fields)
        previous = row.digest
    _require_end(account, found)
    return found


def _require_end(account: LedgerAccount, found: Sequence[EntryRow]) -> None:
    """Refuse entries that do not end where their account says. Raises LedgerBroken."""
    known = account.num_entries
    if len(found) < known:
        raise LedgerBroken(account.pk, f"entry {len(found) + 1} is missing")
    heads = (found[known - 1].digest,) if known else ("", account.beginning)
    if account.head not in heads:
        subject = f"entry {known} is" if known else "the ancestors are"
        raise LedgerBroken(account.pk, f"{subject} not as recorded in its account")
    if len(found) > known:
        now = LedgerAccount.objects.filter(pk=account.pk).first()
        if now is None or len(found) > now.num_entries:
            raise LedgerBroken(account.pk, f"entry {len(found)} is not recorded in its account")


def require_digest(
    account: LedgerAccount, previous: str, row: EntryRow, fields: LedgerFields
) -> None:
    """Refuse a row that is not as it was written. Raises LedgerBroken."""
    try:
        digest = chain.digest(
            account.secret, previous, number=row.number, attempt=row.attempt,
            recorded_at=row.recorded_at, texts=fields.texts(row.identity, row.step, row.values),
        )  # fmt: skip
        subtask = fields.subtask(row.values)
    except (AttributeError, TypeError, ValueError):  # values of another form
        digest, subtask = "", (None, None)
    if digest != row.digest or subtask != (row.subtask_group, row.subtask_index):
        name = f"entry {row.number} (identity {row.identity}, step {row.step})"
        raise LedgerBroken(account.pk, f"{name} was changed, or an entry before it")
