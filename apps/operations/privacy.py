"""The privacy ledger: what operations released of the data that they trained on. Never taken back.

Its rows know operations by name only, so they stay when an operation or its checkpoints are
deleted: what was released stays released.
"""

import secrets
from collections.abc import Iterable
from typing import Any, NoReturn, Self

from django.db import models

from trainops.clock import DatabaseNow
from trainops.engines.spending import LEVELS, Entry

SECRET_BYTES = 32


class PrivacyAccount(models.Model):
    """What an operation draws its noise with, and from whom it inherits what they spent."""

    operation_id = models.CharField(primary_key=True, max_length=64)
    secret = models.CharField(max_length=64, help_text="Hexadecimal; leaves the house never.")
    ancestors = models.JSONField(
        default=list, help_text="Whom it was forked from, the eldest first."
    )

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
        cls.objects.create(
            pk=operation_id, secret=source.secret, ancestors=[*source.ancestors, source_id]
        )


class Appended(models.QuerySet["PrivacyEntry"]):
    """Rows that can be added and read."""

    def update(self, **_: Any) -> NoReturn:
        raise TypeError("the privacy ledger is append-only")

    def delete(self) -> NoReturn:
        raise TypeError("the privacy ledger is append-only")


class PrivacyEntry(models.Model):
    """One release, written down before it happened; see trainops.engines.spending.Entry."""

    operation_id = models.CharField(max_length=64)
    attempt = models.PositiveIntegerField()
    noise = models.CharField(max_length=32, help_text="Names the noise, and thereby the release.")
    step = models.PositiveBigIntegerField()
    round = models.PositiveBigIntegerField()
    client = models.PositiveIntegerField(null=True, help_text="Null: it concerns all of them.")
    level = models.CharField(max_length=6, choices=[(each, each) for each in LEVELS])
    noise_multiplier = models.FloatField()
    sample_rate = models.FloatField()
    steps = models.PositiveBigIntegerField()
    carried = models.FloatField(default=0.0, help_text="An epsilon that came without its history.")
    released_at = models.DateTimeField(db_default=DatabaseNow())

    objects = Appended.as_manager()

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["operation_id", "noise"], name="one_entry_per_noise")
        ]

    def __str__(self) -> str:
        return f"{self.operation_id} round {self.round}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise TypeError("the privacy ledger is append-only")
        super().save(*args, **kwargs)

    def delete(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("the privacy ledger is append-only")


FIELDS = (
    "noise", "step", "round", "client", "level", "noise_multiplier", "sample_rate", "steps",
    "carried",
)  # fmt: skip


def is_kept(config: dict[str, Any]) -> bool:
    """Whether an operation of this config keeps anybody's privacy."""
    return bool(config.get("privacy", {}).get("mode", "none") != "none")


def append(operation_id: str, attempt: int, entries: Iterable[Entry]) -> None:
    """Write entries down; those whose noise is known change nothing.

    Raises ValueError for figures that are none: SQLite would leave such a row out without a word,
    as it does known ones.
    """
    entries = list(entries)
    if wrong := [entry.noise for entry in entries if not _is_sound(entry)]:
        raise ValueError(f"no releases by their figures, and none is written down: {wrong}")
    PrivacyEntry.objects.bulk_create(
        [
            PrivacyEntry(
                operation_id=operation_id,
                attempt=attempt,
                **{name: getattr(entry, name) for name in FIELDS},
            )
            for entry in entries
        ],
        ignore_conflicts=True,
        batch_size=500,
    )


def _is_sound(entry: Entry) -> bool:
    """Whether every figure is one (no comparison holds for NaN)."""
    return (
        all(number >= 0 for number in (entry.client or 0, entry.step, entry.round, entry.steps))
        and entry.noise_multiplier >= 0
        and 0 <= entry.sample_rate <= 1
        and entry.carried >= 0
    )


def spent_by(operation_id: str) -> list[Entry]:
    """Return what the operation and those it was forked from spent, the oldest first."""
    account = PrivacyAccount.objects.filter(pk=operation_id).first()
    ancestors = account.ancestors if account else []
    rows = PrivacyEntry.objects.filter(operation_id__in=[*ancestors, operation_id]).order_by("id")
    entries = (
        Entry(**dict(zip(FIELDS, values, strict=True)), is_own=owner == operation_id)
        for owner, *values in rows.values_list("operation_id", *FIELDS)
    )
    found: dict[str, Entry] = {}
    for entry in entries:  # what it and an ancestor did from the same bits is one release
        if entry.noise not in found or entry.is_own:
            found[entry.noise] = entry
    return list(found.values())


def spent_in(operation_id: str, number: int, client: int) -> list[Entry]:
    """Return what was spent of one client in one round."""
    rows = PrivacyEntry.objects.filter(operation_id=operation_id, round=number, client=client)
    return [
        Entry(**dict(zip(FIELDS, values, strict=True)))
        for values in rows.order_by("id").values_list(*FIELDS)
    ]


def told_to_child(operation_id: str) -> dict[str, Any]:
    """Return what the operation's process must know to spend no more than it may."""
    return {
        "secret": PrivacyAccount.of(operation_id).secret,
        "spent": [entry.to_json() for entry in spent_by(operation_id)],
    }
