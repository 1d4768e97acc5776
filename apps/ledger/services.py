"""Append to ledgers and read them; a ledger is verified wherever its entries are read.

`fields` are those of the operation's kind. A fork is of the kind of its ancestors, and so has the
same fields.
"""

import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime

from django.db import transaction

from apps.ledger import chain
from apps.ledger.errors import LedgerBroken
from apps.ledger.models import LedgerAccount, LedgerEntry
from apps.ledger.verification import entry_of, followed, require_digest, rows_where
from trainops.clock import DatabaseNow
from trainops.process.protocol import LedgerState
from trainops.runtime.ledger import Entry
from trainops.runtime.ledger_fields import LedgerFields

SECRET_BYTES = 32
BATCH = 500  # rows in one statement
MAX_PROBLEMS = 5  # in one error


def new_secret() -> str:
    return secrets.token_hex(SECRET_BYTES)


def account_of(operation_id: str) -> LedgerAccount:
    """Return the operation's account; create it if there is none."""
    defaults = {"secret": new_secret()}
    return LedgerAccount.objects.get_or_create(pk=operation_id, defaults=defaults)[0]


def create(operation_id: str, secret: str) -> None:
    """Create an account with a known secret, in hexadecimal."""
    LedgerAccount.objects.create(pk=operation_id, secret=secret)


def inherit(operation_id: str, source_id: str) -> None:
    """Create an account for a fork: the entries of the source and its ancestors hold for it, too.

    The secret is the source's, so what both do from the same bits is one entry.
    """
    source = account_of(source_id)
    ancestors = [*source.ancestors, source_id]
    LedgerAccount.objects.create(
        pk=operation_id, secret=source.secret, ancestors=ancestors,
        head=chain.beginning(source.secret, operation_id, ancestors),
    )  # fmt: skip


def append(operation_id: str, attempt: int, entries: Iterable[Entry], fields: LedgerFields) -> None:
    """Append entries at the end of the chain; those of a known identity change nothing.

    Raises ValueError for values that are not allowed, and LedgerBroken where the account is gone.
    """
    entries = list(entries)
    if wrong := [problem for entry in entries for problem in fields.problems(entry)]:
        problems = "; ".join(wrong[:MAX_PROBLEMS])
        raise ValueError(f"invalid ledger entries, none was recorded: {problems}")
    with transaction.atomic():
        account, moment = _locked(operation_id)
        new = _chained(account, attempt, moment, _unknown(operation_id, entries), fields)
        if new:
            LedgerEntry.objects.bulk_create(new, batch_size=BATCH)
            accounts = LedgerAccount.objects.filter(pk=operation_id)
            accounts.update(head=new[-1].digest, num_entries=new[-1].number)


def _chained(
    account: LedgerAccount,
    attempt: int,
    moment: datetime,
    entries: Sequence[Entry],
    fields: LedgerFields,
) -> list[LedgerEntry]:
    """Return the rows of new entries, which continue the account's chain."""
    head, found = account.head or account.beginning, []
    for number, entry in enumerate(entries, start=account.num_entries + 1):
        values = fields.stored(entry.values)
        head = chain.digest(
            account.secret, head, number=number, attempt=attempt, recorded_at=moment,
            texts=fields.texts(entry.identity, entry.step, values),
        )  # fmt: skip
        group, index = fields.subtask(values)
        found.append(
            LedgerEntry(
                operation_id=account.pk,
                attempt=attempt,
                number=number,
                identity=entry.identity,
                step=entry.step,
                values=values,
                subtask_group=group,
                subtask_index=index,
                digest=head,
                recorded_at=moment,
            )
        )
    return found


def _locked(operation_id: str) -> tuple[LedgerAccount, datetime]:
    """Return the account, locked against other writers, and the database's time."""
    account_of(operation_id)
    accounts = LedgerAccount.objects.select_for_update().annotate(moment=DatabaseNow())
    account = accounts.get(pk=operation_id)
    if not account.num_entries and LedgerEntry.objects.filter(operation_id=operation_id).exists():
        raise LedgerBroken(operation_id, "it has entries, but its account has none")
    return account, account.moment


def _unknown(operation_id: str, entries: Sequence[Entry]) -> list[Entry]:
    """Return those of the entries that are not recorded yet, each of them once."""
    found: dict[str, Entry] = {}
    for entry in entries:
        found.setdefault(entry.identity, entry)
    identities = list(found)
    for at in range(0, len(identities), BATCH):
        some = identities[at : at + BATCH]
        known = LedgerEntry.objects.filter(operation_id=operation_id, identity__in=some)
        for identity in known.values_list("identity", flat=True):
            del found[identity]
    return list(found.values())


def entries_of(operation_id: str, fields: LedgerFields) -> list[Entry]:
    """Return the entries of the operation and of those it was forked from, the oldest first.

    Raises LedgerBroken where a row was changed since it was written, or is missing.
    """
    found: dict[str, Entry] = {}
    for row in sorted(followed(operation_id, fields), key=lambda row: row.pk):
        entry = entry_of(row, fields, is_own=row.operation_id == operation_id)
        # What it and an ancestor did from the same bits is one entry.
        if entry.identity not in found or entry.is_own:
            found[entry.identity] = entry
    return list(found.values())


def entries_where(
    operation_id: str, fields: LedgerFields, *, group: int, index: int
) -> list[Entry]:
    """Return the operation's own entries of one subtask.

    Raises LedgerBroken where one of these rows was changed since it was written.
    """
    account = account_of(operation_id)
    found = rows_where(operation_id, group=group, index=index)
    numbers = [row.number - 1 for row in found]
    before = LedgerEntry.objects.filter(operation_id=operation_id, number__in=numbers)
    digests = dict(before.values_list("number", "digest"))
    for row in found:
        previous = digests.get(row.number - 1, "") if row.number > 1 else account.beginning
        require_digest(account, previous, row, fields)
    return [entry_of(row, fields) for row in found]


def verify(operation_id: str, fields: LedgerFields) -> None:
    """Verify the chain of the operation's ledger, and of those it inherits from.

    Raises LedgerBroken, which names the entry.
    """
    for _ in followed(operation_id, fields):
        pass


def state(operation_id: str, fields: LedgerFields) -> LedgerState:
    """Return the ledger as the operation's process needs it."""
    secret = account_of(operation_id).secret
    return LedgerState(secret, tuple(entries_of(operation_id, fields)))
