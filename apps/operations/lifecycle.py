"""The life of an operation.

PENDING ──▶ RUNNING ──▶ COMPLETED
   │         │ ▲ ├────▶ FAILED ─────▶ RESUMING   (a person resumes)
   │         │ │ └────▶ CANCELLED ──▶ RESUMING
   │         ▼ │
   │      RESUMING ───▶ CANCELLED | FAILED       (preempted or restarted; a worker claims it again)
   └─────────────────▶ CANCELLED

A cancel is a request beside the state, not a state: the work may end before it hears of it.
"""

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
    CANCELLED_BY_PERSON = "CANCELLED_BY_PERSON", "a person cancelled it"
    KILLED_BY_PERSON = "KILLED_BY_PERSON", "a person killed it"
    CANCEL_TIMEOUT = "CANCEL_TIMEOUT", "it did not reach a safe point in time and was killed"
    SHUTDOWN = "SHUTDOWN", "its worker was stopped"
    DROPPED = "DROPPED", "its round went on without it"
    WORKER_LOST = "WORKER_LOST", "its worker went silent"
    LEASE_LOST = "LEASE_LOST", "its attempt was fenced off"
    PROCESS_KILLED = "PROCESS_KILLED", "its process was killed"
    SEGMENTATION_FAULT = "SEGMENTATION_FAULT", "its process crashed"
    OUT_OF_MEMORY = "OUT_OF_MEMORY", "it ran out of memory"
    NON_FINITE_LOSS = "NON_FINITE_LOSS", "its loss became NaN or infinite"
    STALLED = "STALLED", "it made no progress"
    TIME_LIMIT = "TIME_LIMIT", "it reached its time limit"
    JOB_ERROR = "JOB_ERROR", "its code raised an error"
    INPUT_ERROR = "INPUT_ERROR", "its data does not fit its config"
    CHECKPOINT_CORRUPTED = "CHECKPOINT_CORRUPTED", "none of its checkpoints is whole"
    STORAGE_ERROR = "STORAGE_ERROR", "its checkpoint could not be stored"
    PRIVACY_BUDGET = "PRIVACY_BUDGET", "its privacy budget is spent"
    PRIVACY_LEDGER_MISMATCH = (
        "PRIVACY_LEDGER_MISMATCH", "its checkpoint and the privacy ledger contradict each other"
    )  # fmt: skip
    HOUSE_ERROR = "HOUSE_ERROR", "the machinery around it failed"
