"""The ledger of an operation: what its job records durably and never takes back.

An entry is recorded before what it describes happens, outside of any checkpoint. It stays, whatever
becomes of the state that led to it. What the entries of a kind hold, the kind declares
(trainops.runtime.ledger_fields).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypedDict

Value = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One record. Two entries of one identity are the same entry.

    `step` is the job's at that time. `values` are those of the kind's fields.
    """

    identity: str
    step: int
    values: Mapping[str, Value]
    is_own: bool = True  # False: of the operation that this one was forked from

    def to_json(self) -> "EntryJson":
        return {
            "identity": self.identity,
            "step": self.step,
            "values": self.values,
            "is_own": self.is_own,
        }


class EntryJson(TypedDict):
    """The fields of an Entry."""

    identity: str
    step: int
    values: Mapping[str, Value]
    is_own: bool


class Ledger(Protocol):
    """Append-only entries that outlive every attempt and every checkpoint."""

    @property
    def secret(self) -> bytes:
        """The key of the operation's random numbers; not in any checkpoint, config or log."""

    @property
    def is_durable(self) -> bool:
        """Whether it may hold entries that a checkpoint does not know of."""

    def entries(self) -> Sequence[Entry]:
        """Return all entries, the oldest first."""

    def append(self, entries: Sequence[Entry]) -> None:
        """Append entries; return once they are durable. A known identity changes nothing."""


class MemoryLedger:
    """A ledger in memory, for runs without a server."""

    def __init__(
        self, entries: Iterable[Entry] = (), *, secret: bytes = b"", is_durable: bool = False
    ) -> None:
        self.secret, self.is_durable = secret, is_durable
        self._entries = {entry.identity: entry for entry in entries}

    def entries(self) -> Sequence[Entry]:
        return list(self._entries.values())

    def append(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._entries.setdefault(entry.identity, entry)
