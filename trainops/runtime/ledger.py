"""What training spends of the privacy of those whose data it sees, and who remembers it.

A release is one use of noise that others may see the result of. It is written down before it
happens, outside of any checkpoint, and never taken back: what was released stays released, whatever
becomes of the state that led to it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

Level = Literal["sample", "user"]
LEVELS: tuple[Level, ...] = ("sample", "user")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One release, or several with the same noise multiplier and sample rate.

    `noise` identifies the noise: two releases of one identity are one and the same, bit for bit, so
    the second tells nobody anything. `step` is the job's when it happened. `client` is None where
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
        return asdict(self)


class PrivacyLedger(Protocol):
    """Who remembers what was released; outlives every attempt and every checkpoint."""

    @property
    def secret(self) -> bytes:
        """What noise and samples are drawn with; not in any checkpoint, config or log."""

    @property
    def is_durable(self) -> bool:
        """Whether it knows of releases that a checkpoint does not."""

    def spent(self) -> Sequence[Entry]:
        """Return everything that was written down, the oldest first."""

    def write(self, entries: Sequence[Entry]) -> None:
        """Write entries down and return once that is durable. Known ones change nothing."""


class MemoryLedger:
    """The ledger of a run without a house around it: it knows what this process has seen."""

    def __init__(
        self, spent: Iterable[Entry] = (), *, secret: bytes = b"", is_durable: bool = False
    ) -> None:
        self.secret, self.is_durable = secret, is_durable
        self._spent = {entry.noise: entry for entry in spent}

    def spent(self) -> Sequence[Entry]:
        return list(self._spent.values())

    def write(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._spent.setdefault(entry.noise, entry)
