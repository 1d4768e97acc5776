"""Which metric points stand: those of the branch that leads to where an attempt starts.

A person may resume from any checkpoint, and a resume falls back to an older one where the newest is
away, so the attempts of an operation form a tree. The branch of a checkpoint holds the points of
its attempt up to it, those of the attempt that this one started from, up to there, and so on.
"""

from dataclasses import dataclass, field

from django.db.models import Max, Min, Q

from apps.checkpoints import storage
from apps.operations.records import Attempt, MetricPoint


@dataclass(slots=True)
class Branch:
    """The last step that counts of each attempt; of `unknown`, how far the others count."""

    last_steps: dict[int, int] = field(default_factory=dict)
    unknown: Q = field(default_factory=lambda: Q(pk__in=[]))


def stand(operation_id: str, *, by: int, checkpoint: str | None, measured_to: int) -> None:
    """Retire all points but those of the branch that attempt `by` continues, which stand (again).

    It starts from a checkpoint's directory, None where it starts over, and measures what is after
    the step `measured_to`.
    """
    branch = _branch(operation_id, checkpoint, measured_to)
    points = MetricPoint.objects.filter(operation_id=operation_id, attempt__lt=by)
    retired, standing = points.exclude(retired_by=None), points.filter(retired_by=None)
    for attempt, first in retired.values_list("attempt").annotate(Min("step")).order_by():
        if first <= (last := branch.last_steps.get(attempt, -1)):
            retired.filter(attempt=attempt, step__lte=last).update(retired_by=None)
    for attempt, newest in standing.values_list("attempt").annotate(Max("step")).order_by():
        if newest > (last := branch.last_steps.get(attempt, -1)):
            beyond = standing.filter(attempt=attempt, step__gt=last)
            beyond.exclude(branch.unknown).update(retired_by=by)


def _branch(operation_id: str, checkpoint: str | None, measured_to: int) -> Branch:
    begun = Attempt.objects.filter(operation_id=operation_id).exclude(receipt=None)
    starts = {
        number: (directory, (step if measured is None else measured) or 0)
        for number, directory, step, measured in begun.values_list(
            "number", "receipt__checkpoint", "from_step", "measured_to"
        )
    }
    branch = Branch()
    while checkpoint:
        attempt = storage.attempt_of(checkpoint)
        branch.last_steps[attempt] = measured_to
        checkpoint, start = starts.get(attempt, (checkpoint, 0))
        if checkpoint and storage.attempt_of(checkpoint) >= attempt:
            # A database that was restored from a backup does not know where it began.
            branch.unknown = Q(attempt__lt=attempt, step__lte=measured_to)
            break
        measured_to = min(measured_to, start)
    return branch
