"""The life of an operation.

PENDING ──▶ RUNNING ──▶ COMPLETED
   │         │ ▲ ├────▶ FAILED ─────▶ RESUMING   (a person resumes)
   │         │ │ └────▶ CANCELLED ──▶ RESUMING
   │         ▼ │
   │      RESUMING ───▶ CANCELLED | FAILED       (preempted or restarted; a worker claims it again)
   └─────────────────▶ CANCELLED

A cancel is a request beside the state, not a state: the work may end before it hears of it.
"""

from dataclasses import dataclass
from typing import TypedDict

from django.db.models import TextChoices


class State(TextChoices):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    RESUMING = "RESUMING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


MOVES: dict[State, set[State]] = {
    State.PENDING: {State.RUNNING, State.CANCELLED},
    State.RUNNING: {State.COMPLETED, State.FAILED, State.CANCELLED, State.RESUMING},
    State.RESUMING: {State.RUNNING, State.CANCELLED, State.FAILED},
    State.COMPLETED: set(),
    # To RUNNING only by a worker that proves it still holds the current attempt's lease.
    State.FAILED: {State.RESUMING, State.RUNNING},
    State.CANCELLED: {State.RESUMING},
}
WAITING = frozenset({State.PENDING, State.RESUMING})  # a worker may claim it
ACTIVE = WAITING | {State.RUNNING}
FINISHED = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED})
RESUMABLE = frozenset({State.FAILED, State.CANCELLED})


def sources_of(state: State) -> set[State]:
    """Return the states that may become `state`."""
    return {source for source, targets in MOVES.items() if state in targets}


class Reason(TextChoices):
    """Why an operation, or one of its attempts, ended as it did."""

    NONE = "", ""
    CANCELLED_BY_PERSON = "CANCELLED_BY_PERSON", "cancelled by a user"
    KILLED_BY_PERSON = "KILLED_BY_PERSON", "killed by a user"
    CANCEL_TIMEOUT = "CANCEL_TIMEOUT", "killed: no safe point before the cancel timeout"
    SHUTDOWN = "SHUTDOWN", "the worker was stopped"
    PREEMPTED = "PREEMPTED", "an operation of higher priority needed its slots"
    BUDGET_USED_UP = "BUDGET_USED_UP", "the budget of its owner or project is used up"
    PRUNED = "PRUNED", "stopped early by the pruner of its study"
    DROPPED = "DROPPED", "the parent proceeded without this subtask"
    WORKER_LOST = "WORKER_LOST", "the worker stopped responding"
    LEASE_LOST = "LEASE_LOST", "the attempt lost its lease"
    PROCESS_KILLED = "PROCESS_KILLED", "the process was killed"
    SEGMENTATION_FAULT = "SEGMENTATION_FAULT", "the process crashed"
    PROCESS_EXITED = "PROCESS_EXITED", "the program exited before the operation was done"
    OUT_OF_MEMORY = "OUT_OF_MEMORY", "out of memory"
    NON_FINITE_LOSS = "NON_FINITE_LOSS", "the loss became NaN or infinite"
    EXPLODING_NORM = "EXPLODING_NORM", "the gradient norm exceeded its limit"
    STALLED = "STALLED", "no progress"
    TIME_LIMIT = "TIME_LIMIT", "the time limit was reached"
    JOB_ERROR = "JOB_ERROR", "the recipe raised an exception"
    INPUT_ERROR = "INPUT_ERROR", "the data does not fit the config"
    CHECKPOINT_CORRUPTED = "CHECKPOINT_CORRUPTED", "no checkpoint is intact"
    NOT_EXACT = "NOT_EXACT", "the resume would not be exact"
    STORAGE_ERROR = "STORAGE_ERROR", "the checkpoint could not be stored"
    DATASET_AWAY = "DATASET_AWAY", "the worker does not have the directory of a dataset"
    PRIVACY_BUDGET = "PRIVACY_BUDGET", "the privacy budget is spent"
    PRIVACY_LEDGER_MISMATCH = (
        "PRIVACY_LEDGER_MISMATCH", "the checkpoint contradicts the privacy ledger"
    )  # fmt: skip
    PLATFORM_ERROR = "PLATFORM_ERROR", "internal error of the platform"

    @classmethod
    def _missing_(cls, value: object) -> "Reason | None":
        """Find a reason by its older name, as workers and clients of older versions send it."""
        return next((cls(new) for old, new in OLDER_REASONS.items() if old == value), None)


def reason_label(reason: str) -> str:
    """Return the label of a stored reason; one that a newer version stored is its own label."""
    try:
        return str(Reason(reason).label)
    except ValueError:
        return reason


@dataclass(frozen=True, slots=True)
class Handback:
    """Why the platform has an attempt saved and queued again; the note is that of its end."""

    reason: Reason
    note: str


class ReportedError(TypedDict):
    """The error of a failed attempt."""

    code: str
    message: str
    traceback: str


OLDER_REASONS = {"HOUSE_ERROR": "PLATFORM_ERROR"}  # older name → name
