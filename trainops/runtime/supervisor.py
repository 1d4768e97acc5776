"""Whom a run answers to, and what it is answered."""

from enum import Enum, auto
from typing import Protocol

from trainops.runtime.checkpoint.manifest import Candidate, Checkpoint
from trainops.runtime.errors import CheckpointCorrupted, SaveFailed
from trainops.runtime.job import Progress
from trainops.runtime.receipt import Receipt


class Directive(Enum):
    """What a supervisor answers to a report."""

    PROCEED = auto()
    CANCEL = auto()  # a person asked
    PREEMPT = auto()  # the worker is needed elsewhere; run again later


class Supervisor(Protocol):
    """Whom a run answers to. Called between steps, never inside one; `checkpointed` beside them."""

    def restored(self, receipt: Receipt) -> None:
        """Hear, once, where the run starts and how exact that is."""

    def corrupted(self, candidate: Candidate, error: CheckpointCorrupted) -> None:
        """Hear that a checkpoint is bad; the next older one is tried."""

    def report(self, progress: Progress) -> Directive:
        """Hear how far the job is; answer whether it goes on. Takes microseconds."""

    def checkpointed(self, checkpoint: Checkpoint) -> None:
        """Commit the checkpoint, after everything reported up to its step is durable.

        Called in a thread of its own while the job goes on and reports later steps.
        Raises LeaseLost if this attempt no longer owns the operation, and SaveFailed if the
        storage did not take it.
        """

    def save_failed(self, error: SaveFailed) -> None:
        """Hear that a checkpoint could not be written; the run goes on without it."""
