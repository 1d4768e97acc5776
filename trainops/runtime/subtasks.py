"""Parts of a job that are done by operations of their own, on whatever machine may do them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from trainops.runtime.checkpoint.manifest import Candidate
from trainops.runtime.ledger import Entry


@dataclass(frozen=True, slots=True)
class Part:
    """What one client is to do in one round.

    `epochs` is how many of its local epochs the budget has room for. `begins_with` names the model
    that it begins with: one of the same round, client, epochs and model is the same part. `given`
    is a checkpoint of the server with that model; who sends it out does not know where it will lie.
    """

    round: int
    client: int
    epochs: int
    begins_with: str = ""
    name: str = ""  # for people; where chance decides who takes part, it does not say who
    label: str = ""  # of the workers that may do it; empty: as of the whole
    given: Candidate | None = None


@dataclass(frozen=True, slots=True)
class Returned:
    """What became of a part. `spent` is all that the ledger holds of it, whatever became of it."""

    round: int
    client: int
    how: Literal["done", "failed", "dropped"]
    checkpoint: Candidate | None = None  # its final one, on this machine; of one that is done
    spent: Sequence[Entry] = field(default=(), repr=False)
    note: str = ""  # what went wrong


class Delegates(Protocol):
    """Who has parts done elsewhere. Whoever asks again for the same parts gets what there is."""

    @property
    def saved_step(self) -> int | None:
        """The step of this attempt's newest committed checkpoint, or of the one it began from."""

    @property
    def problem(self) -> str:
        """Why the last checkpoint could not be saved; empty where it was."""

    def send(self, parts: Sequence[Part]) -> None:
        """Have these parts of one round done, from what the newest checkpoint holds."""

    def drop(self, number: int, clients: Sequence[int]) -> None:
        """Wait for these clients no more. Those that are done by then are returned all the same."""

    def heard(self, seconds: float) -> Sequence[Returned]:
        """Return what is new, after waiting so long for it at most; sooner where the run stops."""

    def age_seconds(self, number: int) -> float:
        """Return for how long a round's parts have been out; 0 where that is not known yet."""
