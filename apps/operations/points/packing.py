"""Operations whose points are to be packed although no attempt does: those of an early version."""

from django.db.models import Count, Max

from apps.operations.id_order import oldest_first
from apps.operations.models import MetricPoint, Operation, PackedPoints

PAGE = 500


def pack_left() -> int:
    """Pack the points of all operations that have many unpacked ones; return how many these were.

    Each transaction is short, so that an interrupted run is continued by the next one.
    """
    num_packed, last = 0, ""
    ids = Operation.objects.order_by("pk").values_list("pk", flat=True)
    while page := list(ids.filter(pk__gt=last)[:PAGE]):
        last = page[-1]
        for operation_id in _with_many(page):
            from apps.operations.points import packed_points  # noqa: PLC0415 - loads NumPy

            packed_points.pack_all(operation_id)
            num_packed += 1
    return num_packed


def _with_many(ids: list[str]) -> list[str]:
    packs = PackedPoints.objects.filter(operation_id__in=ids).order_by().values_list("operation_id")
    newest = dict(packs.annotate(Max("last_id")))
    points = MetricPoint.objects.filter(
        operation_id__in=[each for each in ids if each not in newest]
    )
    counts = dict(points.order_by().values_list("operation_id").annotate(Count("id")))
    for operation_id, last_id in newest.items():
        unpacked = oldest_first(MetricPoint.objects.all(), last_id, operation_id=operation_id)
        counts[operation_id] = unpacked.count()
    return [each for each, num in counts.items() if num >= PackedPoints.MAX_UNPACKED]
