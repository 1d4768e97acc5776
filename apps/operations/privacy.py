"""The privacy ledger: what operations released of the data that they trained on. Never taken back.

Its rows know operations by name only, so they stay when an operation or its checkpoints are
deleted: what was released stays released. The rows of one operation are a hash chain
(apps.operations.chain), which is followed wherever anything is computed from them; the databases
refuse to change or delete one (apps.operations.guards).
"""

import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, NoReturn, Self

from django.db import models, transaction

from apps.operations import chain
from apps.operations.chain import FIELDS
from apps.operations.errors import LedgerBroken
from trainops.clock import DatabaseNow
from trainops.runtime.ledger import LEVELS, Entry

SECRET_BYTES = 32
BATCH = 500  # rows in one statement
MAX_NOISE = 32  # characters
MAX_INTEGER, MAX_CLIENT = 2**63 - 1, 2**31 - 1  # what the columns of every database hold
MAX_PROBLEMS = 5  # that are told at once


def _is_integer(value: Any, greatest: int = MAX_INTEGER) -> bool:
    return type(value) is int and 0 <= value <= greatest  # a bool is none


def _is_number(value: Any, greatest: float = sys.float_info.max) -> bool:
    """No comparison holds for NaN."""
    return isinstance(value, int | float) and type(value) is not bool and 0 <= value <= greatest


INTEGER = (_is_integer, f"an integer from 0 to {MAX_INTEGER}")
NUMBER = (_is_number, "a finite number from 0")
ALLOWED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "noise": (
        lambda value: type(value) is str and len(value) <= MAX_NOISE,
        f"a string of at most {MAX_NOISE} characters",
    ),
    "step": INTEGER,
    "round": INTEGER,
    "client": (
        lambda value: value is None or _is_integer(value, MAX_CLIENT),
        f"null, or an integer from 0 to {MAX_CLIENT}",
    ),
    "level": (lambda value: type(value) is str and value in LEVELS, f"one of {', '.join(LEVELS)}"),
    "noise_multiplier": NUMBER,
    "sample_rate": (partial(_is_number, greatest=1), "a number from 0 to 1"),
    "steps": INTEGER,
    "carried": NUMBER,
}


class PrivacyAccount(models.Model):
    """What an operation draws its noise with, and from whom it inherits what they spent."""

    operation_id = models.CharField(primary_key=True, max_length=64)
    secret = models.CharField(max_length=64, help_text="Hexadecimal; leaves the house never.")
    ancestors = models.JSONField(
        default=list, help_text="Whom it was forked from, the eldest first."
    )
    entries = models.PositiveBigIntegerField(default=0, help_text="How many its ledger has.")
    head = models.CharField(max_length=64, default="", help_text="The digest of its newest entry.")

    def __str__(self) -> str:
        return self.operation_id

    @classmethod
    def of(cls, operation_id: str) -> Self:
        """Return the operation's account, opened where it has none yet."""
        fresh = {"secret": secrets.token_hex(SECRET_BYTES)}
        return cls.objects.get_or_create(pk=operation_id, defaults=fresh)[0]

    @classmethod
    def inherit(cls, operation_id: str, source_id: str) -> None:
        """Open an account for a fork: whatever the source and its ancestors spent is spent.

        The secret is the source's, so a step that both do from the same bits is one release.
        """
        source = cls.of(source_id)
        ancestors = [*source.ancestors, source_id]
        cls.objects.create(
            pk=operation_id, secret=source.secret, ancestors=ancestors,
            head=chain.beginning(source.secret, operation_id, ancestors),
        )  # fmt: skip

    @property
    def beginning(self) -> str:
        """What its chain begins with."""
        return chain.beginning(self.secret, self.operation_id, self.ancestors)


class Appended(models.QuerySet["PrivacyEntry"]):
    """Rows that can be added and read."""

    def update(self, **_: Any) -> NoReturn:
        raise TypeError("the privacy ledger is append-only")

    def delete(self) -> NoReturn:
        raise TypeError("the privacy ledger is append-only")


class PrivacyEntry(models.Model):
    """One release, written down before it happened; see trainops.runtime.ledger.Entry."""

    operation_id = models.CharField(max_length=64)
    attempt = models.PositiveIntegerField()
    noise = models.CharField(
        max_length=MAX_NOISE, help_text="Names the noise, and thereby the release."
    )
    step = models.PositiveBigIntegerField()
    round = models.PositiveBigIntegerField()
    client = models.PositiveIntegerField(null=True, help_text="Null: it concerns all of them.")
    level = models.CharField(max_length=6, choices=[(each, each) for each in LEVELS])
    noise_multiplier = models.FloatField()
    sample_rate = models.FloatField()
    steps = models.PositiveBigIntegerField()
    carried = models.FloatField(default=0.0, help_text="An epsilon that came without its history.")
    released_at = models.DateTimeField(db_default=DatabaseNow())
    number = models.PositiveBigIntegerField(help_text="Its place in its ledger, from 1.")
    digest = models.CharField(max_length=64, help_text="Of its fields and the digest before it.")

    objects = Appended.as_manager()

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["operation_id", "noise"], name="one_entry_per_noise"),
            models.UniqueConstraint(fields=["operation_id", "number"], name="one_entry_per_number"),
        ]

    def __str__(self) -> str:
        return f"{self.operation_id} round {self.round}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise TypeError("the privacy ledger is append-only")
        super().save(*args, **kwargs)

    def delete(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("the privacy ledger is append-only")


def append(operation_id: str, attempt: int, entries: Iterable[Entry]) -> None:
    """Write entries down, at the end of the chain; those whose noise is known change nothing.

    Raises ValueError for figures that are none, and LedgerBroken where the ledger's own account is
    gone.
    """
    entries = list(entries)
    if wrong := [problem for entry in entries for problem in _problems(entry)]:
        told = "; ".join(wrong[:MAX_PROBLEMS])
        raise ValueError(f"no releases by their figures, and none is written down: {told}")
    with transaction.atomic():
        account, moment = _locked(operation_id)
        head, rows = account.head or account.beginning, []
        for entry in _unknown(operation_id, entries):
            values, number = [getattr(entry, name) for name in FIELDS], account.entries + 1
            head = chain.digest(
                account.secret, head, number=number, attempt=attempt, released_at=moment,
                values=values,
            )  # fmt: skip
            account.entries = number
            rows.append(
                PrivacyEntry(
                    operation_id=operation_id,
                    attempt=attempt,
                    number=number,
                    digest=head,
                    released_at=moment,
                    **dict(zip(FIELDS, values, strict=True)),
                )
            )
        if rows:
            PrivacyEntry.objects.bulk_create(rows, batch_size=BATCH)
            accounts = PrivacyAccount.objects.filter(pk=operation_id)
            accounts.update(head=head, entries=account.entries)


def _locked(operation_id: str) -> tuple[PrivacyAccount, datetime]:
    """Return the account, locked against other writers, and the database's time."""
    PrivacyAccount.of(operation_id)
    accounts = PrivacyAccount.objects.select_for_update().annotate(moment=DatabaseNow())
    account = accounts.get(pk=operation_id)
    if not account.entries and PrivacyEntry.objects.filter(operation_id=operation_id).exists():
        raise LedgerBroken(operation_id, "it has entries, its account has none")
    return account, account.moment


def _unknown(operation_id: str, entries: Sequence[Entry]) -> list[Entry]:
    """Return those of the entries that are not written down yet, each of them once."""
    found: dict[str, Entry] = {}
    for entry in entries:
        found.setdefault(entry.noise, entry)
    names = list(found)
    for at in range(0, len(names), BATCH):
        some = names[at : at + BATCH]
        rows = PrivacyEntry.objects.filter(operation_id=operation_id, noise__in=some)
        for noise in rows.values_list("noise", flat=True):
            del found[noise]
    return list(found.values())


def _problems(entry: Entry) -> Iterator[str]:
    """Yield what no column gives back just as the digest is taken over it, and what is no figure.

    Nobody could mend such an entry once it is written.
    """
    for name, (is_allowed, allowed) in ALLOWED.items():
        value = getattr(entry, name)
        if not is_allowed(value):
            yield f"{name} of {entry.noise!r:.40}: got {value!r:.40}; allowed: {allowed}"


def spent_by(operation_id: str) -> list[Entry]:
    """Return what the operation and those it was forked from spent, the oldest first.

    Raises LedgerBroken where a row was changed since it was written, or is missing.
    """
    found: dict[str, Entry] = {}
    for row in sorted(_followed(operation_id), key=lambda row: row.pk):
        is_own = row.operation_id == operation_id
        entry = Entry(**dict(zip(FIELDS, row.values, strict=True)), is_own=is_own)
        # What it and an ancestor did from the same bits is one release.
        if entry.noise not in found or entry.is_own:
            found[entry.noise] = entry
    return list(found.values())


def verify(operation_id: str) -> None:
    """Follow the chain of the operation's ledger, and of those it inherits from.

    Raises LedgerBroken, which names the entry.
    """
    for _ in _followed(operation_id):
        pass


class Row(NamedTuple):
    """An entry as the database gives it; `values` are those of FIELDS."""

    pk: int
    operation_id: str
    number: int
    attempt: int
    released_at: datetime
    digest: str
    values: Sequence[Any]


def _rows(**where: Any) -> Iterator[Row]:
    names = ("pk", "operation_id", "number", "attempt", "released_at", "digest")
    rows = PrivacyEntry.objects.filter(**where).order_by("number")
    for pk, owner, number, attempt, moment, digest, *values in rows.values_list(*names, *FIELDS):
        yield Row(pk, owner, number, attempt, moment, digest, values)


def _followed(operation_id: str) -> Iterator[Row]:
    """Yield the entries of the operation and its ancestors, each ledger by its chain."""
    account = PrivacyAccount.objects.filter(pk=operation_id).first()
    for owner in [*(account.ancestors if account else []), operation_id]:
        yield from _chain_of(owner)


def _chain_of(owner: str) -> list[Row]:
    """Return the entries of one operation, if they are as they were written."""
    # The account first: entries that are appended meanwhile are more than it knows of.
    account = PrivacyAccount.objects.filter(pk=owner).first()
    rows = list(_rows(operation_id=owner))
    if account is None:
        if rows:
            raise LedgerBroken(owner, "its account is missing")
        return []
    previous = account.beginning
    for number, row in enumerate(rows, start=1):
        if row.number != number:
            raise LedgerBroken(owner, f"entry {number} is missing")
        _require_digest(account, previous, row)
        previous = row.digest
    _require_end(account, rows)
    return rows


def _require_end(account: PrivacyAccount, rows: Sequence[Row]) -> None:
    """Refuse entries that do not end where their account says. Raises LedgerBroken."""
    known = account.entries
    if len(rows) < known:
        raise LedgerBroken(account.pk, f"entry {len(rows) + 1} is missing")
    heads = (rows[known - 1].digest,) if known else ("", account.beginning)
    if account.head not in heads:
        what = f"entry {known} is" if known else "the ancestors are"
        raise LedgerBroken(account.pk, f"{what} not as recorded in its account")
    if len(rows) > known and len(rows) > PrivacyAccount.of(account.pk).entries:
        raise LedgerBroken(account.pk, f"entry {len(rows)} is not recorded in its account")


def _require_digest(account: PrivacyAccount, previous: str, row: Row) -> None:
    digest = chain.digest(
        account.secret, previous, number=row.number, attempt=row.attempt,
        released_at=row.released_at, values=row.values,
    )  # fmt: skip
    if digest != row.digest:
        noise, step, number = row.values[:3]
        name = f"entry {row.number} (release {noise}, step {step}, round {number})"
        raise LedgerBroken(account.pk, f"{name} was changed, or an entry before it")


def spent_in(operation_id: str, number: int, client: int) -> list[Entry]:
    """Return what was spent of one client in one round.

    Raises LedgerBroken where one of these rows was changed since it was written.
    """
    account = PrivacyAccount.of(operation_id)
    rows = list(_rows(operation_id=operation_id, round=number, client=client))
    numbers = [row.number - 1 for row in rows]
    before = PrivacyEntry.objects.filter(operation_id=operation_id, number__in=numbers)
    digests = dict(before.values_list("number", "digest"))
    for row in rows:
        previous = digests.get(row.number - 1, "") if row.number > 1 else account.beginning
        _require_digest(account, previous, row)
    return [Entry(**dict(zip(FIELDS, row.values, strict=True))) for row in rows]


def told_to_child(operation_id: str) -> dict[str, Any]:
    """Return what the operation's process must know to spend no more than it may."""
    return {
        "secret": PrivacyAccount.of(operation_id).secret,
        "spent": [entry.to_json() for entry in spent_by(operation_id)],
    }
