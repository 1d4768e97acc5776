"""Subtasks: operations that compute parts of another operation, on any worker."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from trainops.runtime.checkpoint.manifest import Candidate
from trainops.runtime.ledger import Entry

SubtaskOutcome = Literal["done", "failed", "dropped"]


@dataclass(frozen=True, slots=True)
class Subtask:
    """One part of a job.

    `spec` holds JSON values that only the kind interprets. `begins_with` identifies the state of
    the parent that the subtask starts from; `given` is a checkpoint with that state, chosen when
    an attempt of the subtask starts.
    """

    group: int  # subtasks of one group are started together
    index: int  # order within the group
    spec: Mapping[str, object]
    num_steps: int
    begins_with: str = ""
    name: str = ""  # display name
    label: str = ""  # of the workers that may run it; empty: as for the parent
    given: Candidate | None = None

    @property
    def identity(self) -> str:
        """Digest of what the subtask computes, apart from its group and index."""
        values = [self.spec, self.num_steps, self.begins_with]
        text = json.dumps(values, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class SubtaskResult:
    """How a subtask ended. `spent`: all its ledger entries, whatever the outcome."""

    group: int
    index: int
    outcome: SubtaskOutcome
    checkpoint: Candidate | None = None  # the final one, on this machine, if it is done
    spent: tuple[Entry, ...] = field(default=(), repr=False)
    note: str = ""  # the error


class SubtaskPort(Protocol):
    """Starts subtasks for a job. Starting the same subtask again is idempotent."""

    @property
    def saved_step(self) -> int | None:
        """The step of this attempt's latest committed checkpoint, or of the restored one."""

    @property
    def problem(self) -> str:
        """Why the last checkpoint could not be saved; empty if it was."""

    def start(self, subtasks: Sequence[Subtask]) -> None:
        """Start subtasks of one group from the latest checkpoint; end those of other groups."""

    def drop(self, group: int, indexes: Sequence[int]) -> None:
        """End these subtasks, unless they are done; each still has a result."""

    def results(self, seconds: float) -> Sequence[SubtaskResult]:
        """Return new results; wait for at most `seconds`, and not at all once the run stops."""

    def age_seconds(self, group: int) -> float:
        """Return the time since the group's start; 0 if it is not known yet."""


def is_of_subtask(identity: Mapping[str, object]) -> bool:
    """Whether a checkpoint with this identity in its manifest is a subtask's."""
    return "subtask" in identity or "part" in identity  # the latter in older checkpoints
