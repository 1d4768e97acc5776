"""Which metric points and media stand: those of the branch that leads to where an attempt starts.

A person may resume from any checkpoint, and a resume falls back to an older one where the newest is
away, so the attempts of an operation form a tree. The branch of a checkpoint holds the points of
its attempt up to it, those of the attempt that this one started from, up to there, and so on.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from django.db.models import BooleanField, ExpressionWrapper, Max, Min, Q

from apps.checkpoints import storage
from apps.operations.models.media import Media
from apps.operations.models.records import Attempt, MetricPoint, PackedPoints
from trainops.media.items import position_of


@dataclass(slots=True)
class CountedSteps:
    """The last step that counts of each attempt; and of those of which nothing is known."""

    last_steps: dict[int, int] = field(default_factory=dict)
    others_before: int = 0  # attempts with lower numbers
    others_to: int = 0  # the last step of them that counts

    def last_of(self, attempt: int) -> int:
        """Return the last step of an attempt that counts, -1 if none does."""
        others_to = self.others_to if attempt < self.others_before else -1
        return max(self.last_steps.get(attempt, -1), others_to)


def stand(
    operation_id: str, *, by: int, checkpoint: str | None, measured_to: int, from_step: int
) -> None:
    """Retire all points but those of the branch that attempt `by` continues, which stand (again).

    It starts from a checkpoint's directory at `from_step`, None where it starts over, and measures
    what is after the step `measured_to`. The same for media.
    """
    _media_stand(operation_id, by, checkpoint, _position(from_step, measured_to))
    branch = _branch(operation_id, checkpoint, measured_to)
    points = MetricPoint.objects.filter(operation_id=operation_id, attempt__lt=by)
    packs = PackedPoints.objects.filter(operation_id=operation_id)
    retired, standing = points.exclude(retired_by=None), points.filter(retired_by=None)
    for attempt, first in retired.values_list("attempt").annotate(Min("step")).order_by():
        if first <= (last := branch.last_steps.get(attempt, -1)):
            retired.filter(attempt=attempt, step__lte=last).update(retired_by=None)
            _split(operation_id, attempt, last)
            packs.filter(attempt=attempt, last_step__lte=last).update(retired_by=None)
    for attempt, newest in standing.values_list("attempt").annotate(Max("step")).order_by():
        if newest > (last := branch.last_of(attempt)):
            standing.filter(attempt=attempt, step__gt=last).update(retired_by=by)
            _split(operation_id, attempt, last)
            beyond = packs.filter(attempt=attempt, first_step__gt=last, retired_by=None)
            beyond.update(retired_by=by)


def _media_stand(operation_id: str, by: int, checkpoint: str | None, position: int) -> None:
    branch = _branch(operation_id, checkpoint, position, _position)
    media = Media.objects.filter(operation_id=operation_id, attempt__lt=by)
    for attempt in media.values_list("attempt", flat=True).distinct().order_by():
        last = branch.last_of(attempt)
        own = media.filter(attempt=attempt)
        own.filter(position__lte=last).exclude(retired_by=None).update(retired_by=None)
        own.filter(position__gt=last, retired_by=None).update(retired_by=by)


def _position(from_step: int, measured_to: int) -> int:
    """Return the last position of media that are not logged again; see `position_of`.

    Where a resume begins with an evaluation, what was logged before it in its step is kept.
    """
    return position_of(from_step, is_early=measured_to < from_step)


def _split(operation_id: str, attempt: int, last_step: int) -> None:
    both = PackedPoints.objects.filter(operation_id=operation_id, attempt=attempt)
    if both.filter(first_step__lte=last_step, last_step__gt=last_step).exists():
        from apps.operations.points import packed_points  # noqa: PLC0415 - loads NumPy

        packed_points.split(operation_id, attempt, last_step)


class _Start(NamedTuple):
    """How an attempt began."""

    number: int
    has_receipt: bool
    checkpoint: str | None  # directory
    from_step: int | None
    measured_to: int | None

    @property
    def last(self) -> int:
        """The last step that it did not measure."""
        return (self.from_step if self.measured_to is None else self.measured_to) or 0


def standing(operation_id: str) -> dict[int, int | None]:
    """Return the attempts whose points stand, each with the last step that counts; None: all."""
    return standing_of_several([operation_id])[operation_id]


def standing_of_several(operation_ids: Collection[str]) -> dict[str, dict[int, int | None]]:
    """Return what `standing` does, by operation; one query."""
    starts = _starts(operation_ids)
    return {each: _standing(starts[each]) for each in operation_ids}


def _standing(starts: Mapping[int, _Start]) -> dict[int, int | None]:
    begun = [each for each in starts.values() if each.from_step is not None]
    newest = max(begun, default=None)
    if newest is None:
        return {}
    if newest.has_receipt:
        branch = _branch_of(starts, newest.checkpoint, newest.last)
    else:  # of an early version, which stored none
        branch = CountedSteps(others_before=newest.number, others_to=newest.last)
    earlier = sorted(each.number for each in begun if each.number < newest.number)
    others = {number: branch.others_to for number in earlier if number < branch.others_before}
    return {**others, **branch.last_steps, newest.number: None}


def _starts(operation_ids: Collection[str]) -> Mapping[str, Mapping[int, _Start]]:
    """Return the starts of the attempts of operations, by number."""
    found: dict[str, dict[int, _Start]] = defaultdict(dict)
    rows = Attempt.objects.filter(operation_id__in=operation_ids).order_by()
    for operation_id, number, has_receipt, *columns in rows.values_list(
        "operation_id",
        "number",
        ExpressionWrapper(~Q(receipt=None), BooleanField()),  # unknown without one
        "receipt__checkpoint",
        "from_step",
        "measured_to",
    ):
        found[operation_id][number] = _Start(number, bool(has_receipt), *columns)
    return found


def _branch(
    operation_id: str,
    checkpoint: str | None,
    measured_to: int,
    last: Callable[[int, int], int] = lambda _, measured_to: measured_to,
) -> CountedSteps:
    """Return what counts of each attempt, as `_branch_of`."""
    return _branch_of(_starts([operation_id])[operation_id], checkpoint, measured_to, last)


def _branch_of(
    starts: Mapping[int, _Start],
    checkpoint: str | None,
    measured_to: int,
    last: Callable[[int, int], int] = lambda _, measured_to: measured_to,
) -> CountedSteps:
    """Return what counts of each attempt.

    last: of a start, by the step of its checkpoint and the last step that it did not measure.
    """
    branch = CountedSteps()
    while checkpoint:
        attempt = storage.attempt_of(checkpoint)
        branch.last_steps[attempt] = measured_to
        before = starts.get(attempt)
        start = 0
        if before and before.has_receipt:
            checkpoint, start = before.checkpoint, last(before.from_step or 0, before.last)
        if checkpoint and storage.attempt_of(checkpoint) >= attempt:
            # A database that was restored from a backup does not know where it began.
            branch.others_before, branch.others_to = attempt, measured_to
            break
        measured_to = min(measured_to, start)
    return branch
