"""Releases: what federated training spends of the privacy of those whose data it sees.

A release is one use of noise that others may see the result of. It is an entry of the operation's
ledger, recorded before it happens: what was released stays released.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

from trainops.runtime.ledger import Entry, Ledger
from trainops.runtime.ledger_fields import LedgerFields, OlderShape, choice, integer, number

Level = Literal["sample", "user"]
LEVELS: tuple[Level, ...] = ("sample", "user")
MAX_NOISE = 32  # characters
MAX_CLIENT = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One release, or several with the same noise multiplier and sample rate.

    `noise` identifies the noise: two releases of one identity are one and the same, bit for bit, so
    the second reveals nothing new. `step` is the job's when it happened. `client` is None where
    it concerns all of them. `carried` is an epsilon that came without its history: it is added to
    what the others come to.

    One without steps, and with nothing carried, released nothing: it says that there are clients
    whose epochs have this sample rate, so that figures need not tell which of them took part.
    """

    noise: str
    step: int
    round: int
    client: int | None
    level: Level
    noise_multiplier: float
    sample_rate: float
    steps: int
    carried: float = 0.0
    is_own: bool = True  # False: of the operation that this one was forked from

    @property
    def is_release(self) -> bool:
        return bool(self.steps or self.carried)

    def to_json(self) -> dict[str, Any]:
        """Return the fields by name. Names of releases follow from this: it must not change."""
        return asdict(self)

    def to_entry(self) -> Entry:
        values = {name: getattr(self, name) for name in FIELDS.names}
        return Entry(identity=self.noise, step=self.step, values=values, is_own=self.is_own)

    @classmethod
    def from_entry(cls, entry: Entry) -> "Release":
        values = cast(dict[str, Any], entry.values)
        return cls(noise=entry.identity, step=entry.step, is_own=entry.is_own, **values)


def _read(flat: Mapping[str, Any]) -> Entry:
    return Release(**flat).to_entry()


def _write(entry: Entry) -> Mapping[str, Any]:
    return Release.from_entry(entry).to_json()


FIELDS = LedgerFields(
    fields=(
        integer("round"),
        integer("client", MAX_CLIENT, is_nullable=True),
        choice("level", LEVELS),
        number("noise_multiplier"),
        number("sample_rate", 1),
        integer("steps"),
        number("carried"),
    ),
    max_identity=MAX_NOISE,
    group="round",
    index="client",
    older=OlderShape(read=_read, write=_write),
)


class ReleaseLedger:
    """An operation's ledger, whose entries are releases."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._releases: dict[str, Release] = {}  # those read so far; entries never change

    @property
    def secret(self) -> bytes:
        return self._ledger.secret

    @property
    def is_durable(self) -> bool:
        return self._ledger.is_durable

    def releases(self) -> Sequence[Release]:
        """Return all releases, the oldest first."""
        for entry in self._ledger.entries():
            if entry.identity not in self._releases:
                self._releases[entry.identity] = Release.from_entry(entry)
        return list(self._releases.values())

    def identities(self) -> set[str]:
        return {entry.identity for entry in self._ledger.entries()}

    def record(self, releases: Sequence[Release]) -> None:
        """Record releases before they happen; return once that is durable."""
        self._ledger.append([each.to_entry() for each in releases])
