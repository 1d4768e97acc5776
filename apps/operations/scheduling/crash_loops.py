"""Operations that restart again and again without progress beyond the same checkpoint."""

from collections.abc import Iterable
from dataclasses import dataclass

from apps.checkpoints import services as checkpoints
from apps.operations import concerns
from apps.operations.attention import Attention
from apps.operations.lifecycle import RESUMABLE, Reason, State
from apps.operations.models import Attempt, Operation

RESTARTS = 3  # from the same checkpoint, without a user's resume in between
LOOK_BACK = 30  # attempts; shutdowns among them do not count


@dataclass(frozen=True, slots=True)
class EndedAttempt:
    """What is known of an attempt that ended: the step at which it began, None if it did not."""

    number: int
    from_step: int | None
    is_preempted: bool = False  # stopped by a shutdown: not a crash


def num_restarts(attempts: Iterable[EndedAttempt], *, next_step: int, resumed_after: int) -> int:
    """Return how many of the latest attempts ended without progress beyond `next_step`.

    Pure. `attempts` are the latest first. `next_step` is that of the checkpoint from which the
    next one begins: an attempt that began before it has made progress. Attempts up to the number
    `resumed_after` were followed by a user's resume.
    """
    count = 0
    for attempt in attempts:
        has_progressed = attempt.from_step is not None and attempt.from_step < next_step
        if attempt.number <= resumed_after or has_progressed:
            break
        count += not attempt.is_preempted
    return count


def check(operation: Operation, *, actor: str, reason: Reason) -> None:
    """Raise the concern about an operation whose attempt was just lost, or clear it."""
    waiting = operation.row.filter(state=State.RESUMING)  # not where a stop cancelled it
    candidates = checkpoints.to_resume_from(operation.pk)
    next_step = candidates[0].step if candidates else 0
    rows = Attempt.objects.filter(operation_id=operation.pk, ended_at__isnull=False)
    attempts = [
        EndedAttempt(number, from_step, outcome == Attempt.Outcome.PREEMPTED)
        for number, from_step, outcome in rows.values_list("number", "from_step", "outcome")[
            :LOOK_BACK
        ]
    ]
    resumes = operation.events.filter(what=State.RESUMING, from_state__in=RESUMABLE)
    resumed_after = resumes.values_list("attempt", flat=True).first() or 0
    count = num_restarts(attempts, next_step=next_step, resumed_after=resumed_after)
    if count < RESTARTS:
        concerns.clear(waiting, Attention.CRASH_LOOPING)
        return
    at = f"{operation.unit or 'step'} {next_step}" if candidates else "the start"
    note = f"{count} restarts from {at}; latest end: {reason.label}"
    concerns.raise_for(waiting, Attention.CRASH_LOOPING, actor=actor, note=note)
