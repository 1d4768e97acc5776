"""Points of operations that ended long ago: few of each long curve are kept.

What is kept is what a chart of the whole curve shows: of each stretch of steps the lowest, the
highest and a non-finite point, and the last point. An interrupted run is continued by the next one.
"""

from collections.abc import Iterator
from typing import TypeAlias

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, Sum

from apps.operations.id_order import oldest_first
from apps.operations.lifecycle import FINISHED
from apps.operations.models import MetricPoint, Operation, OperationQuerySet, PackedPoints
from apps.operations.points.metric_queries import Packed
from trainops.clock import seconds_from_now

MAX_POINTS = 2000  # of a curve, about
AT_ONCE = 1000  # points of one transaction
SECONDS_PER_DAY = 86_400
_KEY = ("name", "attempt", "retired_by")
_Kept: TypeAlias = dict[tuple[object, ...], set[int]]  # steps by the columns of _KEY


def thin_old() -> int:
    """Thin the long curves of operations that ended long enough ago; return how many these were.

    Without a limit (`points_full_days` is 0) all points stay. Those of a study's trials stay until
    all of them have ended: pruners compare them.
    """
    days = settings.THRESHOLDS.points_full_days
    if not days:
        return 0
    ended = Operation.objects.filter(
        state__in=FINISHED, finished_at__lt=seconds_from_now(-days * SECONDS_PER_DAY)
    )
    trials = Operation.objects.exclude(state__in=FINISHED).filter(study=OuterRef("study"))
    old = ended.exclude(Exists(trials))
    long = PackedPoints.objects.filter(operation__in=old).order_by().values("operation_id", *_KEY)
    found = long.annotate(n=Sum("num_points")).filter(n__gt=MAX_POINTS)
    ids = sorted(set(found.values_list("operation_id", flat=True)))
    return sum(_thin(operation_id, old) for operation_id in ids)


def _thin(operation_id: str, old: OperationQuerySet) -> bool:
    """Delete the points between those that are kept; False if the operation was resumed.

    Also False where all of them are kept.

    The packs go last: until then charts are as before, and say to the next run what is kept.
    """
    from apps.operations.points import packed_points  # noqa: PLC0415 - loads NumPy

    source = Packed(operation_id, PackedPoints.newest_id(operation_id))
    points, _ = source.points(MAX_POINTS)
    kept: _Kept = {tuple(key): set(points[key]["step"].tolist()) for key in points}
    is_thinned = _is_interrupted(operation_id)
    for ids in _others(operation_id, kept):
        with transaction.atomic():
            if not _is_locked(operation_id, old):
                return False
            MetricPoint.objects.filter(pk__in=ids).delete()
            is_thinned = True
    if not is_thinned:  # what is left may be long: each stretch also keeps a non-finite point
        return False
    with transaction.atomic():
        if not _is_locked(operation_id, old):
            return False
        PackedPoints.objects.filter(operation_id=operation_id).delete()
    packed_points.pack_all(operation_id)
    return True


def _others(operation_id: str, kept: _Kept) -> Iterator[list[int]]:
    """Yield the ids of points whose steps are not kept, some at a time.

    Those of unknown curves stay: a resume has retired points since the curves were read.
    """
    rows = MetricPoint.objects.values_list("id", *_KEY, "step")
    last_id = 0
    while page := list(oldest_first(rows, last_id, operation_id=operation_id)[:AT_ONCE]):
        last_id = page[-1][0]
        if ids := [
            pk for pk, *key, step in page if tuple(key) in kept and step not in kept[tuple(key)]
        ]:
            yield ids


def _is_interrupted(operation_id: str) -> bool:
    """Whether an earlier run has deleted points, and not the packs, which have them all."""
    packs = PackedPoints.objects.filter(operation_id=operation_id)
    num_packed = packs.aggregate(n=Sum("num_points"))["n"] or 0
    return MetricPoint.objects.filter(operation_id=operation_id).count() < int(num_packed)


def _is_locked(operation_id: str, old: OperationQuerySet) -> bool:
    """Lock the row until the transaction ends; whether its points may still be thinned."""
    Operation.objects.select_for_update().filter(pk=operation_id).first()
    return old.filter(pk=operation_id).exists()
