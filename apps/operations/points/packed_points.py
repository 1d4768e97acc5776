"""Copies of points, packed in arrays: a long curve is read from few rows instead of all its points.

Points are packed in the order of their ids, all metrics of an operation together, so that its other
points are those with higher ids. Packs change where points do: when a resume retires some.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any, NamedTuple, TypedDict

import numpy as np
from django.db import transaction
from django.db.models import Q, Window
from django.db.models.functions import Mod, RowNumber
from numpy.typing import NDArray

from apps.operations.id_order import oldest_first
from apps.operations.models import MetricPoint, Operation, PackedPoints
from apps.operations.points import thinning
from apps.operations.points.metric_queries import NOT_FINITE

PACK = 1024  # points of one row, at most
AT_ONCE = 4096  # points that are packed in one transaction, at most
COARSE = 32  # stretches of steps that the thinned points of a row show, at most one more
FEW = 50  # packs that are named one by one
_NEVER = (1 << 63) - 1  # no step and no id is higher
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

Points = NDArray[np.void]


class PacksChanged(Exception):
    """Packs were replaced while they were read: read again."""


class Key(NamedTuple):
    """What the points of a curve have in common."""

    name: str
    attempt: int
    retired_by: int | None


def pack(operation_id: str, last_id: int = _NEVER) -> int:
    """Pack the oldest points that are not, if they are many; return how many were packed.

    last_id: the highest id of a point that is read. Without one PostgreSQL may sort all unpacked
    points to find the oldest: where they are many, `pack_all` names one.

    Called by one at a time: within the transaction of who owns the operation, or by `pack_all`.
    """
    newest = PackedPoints.newest_id(operation_id)
    unpacked = MetricPoint.objects.filter(operation_id=operation_id, id__gt=newest, id__lte=last_id)
    rows = list(unpacked.order_by("id").values_list("id", *_COLUMNS)[:AT_ONCE])
    if len(rows) < PackedPoints.MAX_UNPACKED:
        return 0
    last_ids: dict[Key, int] = {}
    for row in rows:
        last_ids[Key(*row[1:4])] = row[0]
    curves = {key: [points] for key, points in _arrays(row[1:] for row in rows).items()}
    # A metric that is measured seldom fills a row little by little.
    small = PackedPoints.objects.filter(operation_id=operation_id, num_points__lt=PACK // 2)
    replaced = []
    for each in small:
        if (key := Key(each.name, each.attempt, each.retired_by)) in curves:
            curves[key].append(thinning.read(each.points))
            replaced.append(each.pk)
    PackedPoints.objects.filter(pk__in=replaced).delete()
    PackedPoints.objects.bulk_create(
        _row(operation_id, key, last_ids[key], points[first : first + PACK])
        for key, points in ((key, thinning.joined(parts)) for key, parts in curves.items())
        for first in range(0, len(points), PACK)
    )
    return len(rows)


def pack_all(operation_id: str) -> None:
    """Pack the points of an operation, in short transactions that its owner may wait for."""
    for last_id in (*_ends(operation_id), _NEVER):
        with transaction.atomic():
            Operation.objects.select_for_update().filter(pk=operation_id).first()
            pack(operation_id, last_id)


def _ends(operation_id: str) -> list[int]:
    """Return the id of every unpacked point that is the last of AT_ONCE; reads them once."""
    newest = PackedPoints.newest_id(operation_id)
    unpacked = MetricPoint.objects.filter(operation_id=operation_id, id__gt=newest)
    numbered = unpacked.annotate(rest=Mod(Window(RowNumber(), order_by="id"), AT_ONCE))
    return list(numbered.filter(rest=0).order_by("id").values_list("id", flat=True))


def split(operation_id: str, attempt: int, last_step: int) -> None:
    """Split the packs of an attempt so that none has points on both sides of a step's end."""
    both = PackedPoints.objects.filter(
        operation_id=operation_id, attempt=attempt,
        first_step__lte=last_step, last_step__gt=last_step,
    )  # fmt: skip
    for each in both:
        key, points = Key(each.name, attempt, each.retired_by), thinning.read(each.points)
        is_before = points["step"] <= last_step
        halves = (points[is_before], points[~is_before])
        each.delete()
        PackedPoints.objects.bulk_create(
            _row(operation_id, key, each.last_id, half) for half in halves
        )


def _row(operation_id: str, key: Key, last_id: int, points: Points) -> PackedPoints:
    first, last = int(points["step"][0]), int(points["step"][-1])
    width = 1 << ((last - first) // COARSE).bit_length()
    return PackedPoints(
        operation_id=operation_id,
        **key._asdict(),
        num_points=len(points),
        first_step=first,
        last_step=last,
        last_id=last_id,
        width=width,
        coarse=thinning.thinned(points, width).tobytes(),
        points=points.tobytes(),
    )


class _Pack(NamedTuple):
    """A row without its points."""

    id: int
    name: str
    attempt: int
    retired_by: int | None
    num_points: int
    first_step: int
    last_step: int
    last_id: int
    width: int


@dataclass(slots=True)
class LongCurve:
    """The points of a curve within a window: whole packs inside it, and single points."""

    key: Key
    packs: list[_Pack] = field(default_factory=list)
    arrays: list[Points] = field(default_factory=list)
    last_id: int = 0

    @property
    def num_points(self) -> int:
        return sum(each.num_points for each in self.packs) + sum(map(len, self.arrays))

    @property
    def low(self) -> int:
        """Return the first step."""
        arrays = (int(each["step"][0]) for each in self.arrays)
        return min(*(each.first_step for each in self.packs), *arrays, _NEVER)

    @property
    def high(self) -> int:
        """Return the last step."""
        arrays = (int(each["step"][-1]) for each in self.arrays)
        return max(*(each.last_step for each in self.packs), *arrays, -1, -1)


def long_curves(
    operation_id: str,
    newest: int,
    *,
    names: Sequence[str] = (),
    attempt: int | None = None,
    after_step: int | None = None,
    to_step: int | None = None,
) -> list[LongCurve]:
    """Return curves of an operation within a window of steps.

    From three queries, unless AT_ONCE points or more are not packed yet. `newest`: the newest point
    that is packed. Raises PacksChanged.
    """
    selection = {"name__in": names or None, "attempt": attempt}
    selected = {name: value for name, value in selection.items() if value is not None}
    first = 0 if after_step is None else after_step + 1
    last = _NEVER if to_step is None else to_step
    curves: dict[Key, LongCurve] = {}
    cut: dict[int, LongCurve] = {}  # by the pack that reaches beyond the window
    packs = PackedPoints.objects.filter(operation_id=operation_id, **selected)
    packs = packs.filter(last_step__gte=first, first_step__lte=last)
    for each in map(_Pack._make, packs.order_by().values_list(*_Pack._fields)):
        key = Key(*each[1:4])
        curve = curves.setdefault(key, LongCurve(key))
        curve.last_id = max(curve.last_id, each.last_id)
        if first <= each.first_step and each.last_step <= last:
            curve.packs.append(each)
        else:
            cut[each.id] = curve
    for pk, content in _contents(cut, "points", operation_id=operation_id):
        points = thinning.read(content)
        within = points[(first <= points["step"]) & (points["step"] <= last)]
        if len(within):
            cut[pk].arrays.append(within)
    rows = [
        row
        for row in _unpacked(operation_id, newest)
        if (not names or row[1] in names) and attempt in (None, row[2]) and first <= row[4] <= last
    ]
    for key, unpacked in _arrays(row[1:] for row in rows).items():
        curves.setdefault(key, LongCurve(key)).arrays.append(unpacked)
    for row in rows:
        curve = curves[Key(*row[1:4])]
        curve.last_id = max(curve.last_id, row[0])
    return [each for each in curves.values() if each.packs or each.arrays]


def _unpacked(operation_id: str, newest: int) -> Iterator[tuple[Any, ...]]:
    """Yield id and columns of the points that are not packed."""
    points = MetricPoint.objects.values_list("id", *_COLUMNS)
    num_rows = AT_ONCE
    while num_rows == AT_ONCE:
        page = list(oldest_first(points, newest, operation_id=operation_id)[:AT_ONCE])
        yield from page
        num_rows, newest = len(page), page[-1][0] if page else newest


def read(
    operation_id: str,
    curves: Iterable[LongCurve],
    widths: Mapping[tuple[str, int, int | None], int],
) -> dict[Key, Points]:
    """Return the points of curves, from at most two queries; those that have a width, thinned.

    Raises PacksChanged.
    """
    arrays = {each.key: list(each.arrays) for each in curves}
    keys: dict[str, dict[int, Key]] = {"coarse": {}, "points": {}}
    for curve in curves:
        for pack in curve.packs:
            is_coarse = widths.get(curve.key, 1) % pack.width == 0
            keys["coarse" if is_coarse else "points"][pack.id] = curve.key
    for column, packs in keys.items():
        names = {key.name for key in packs.values()}
        for pk, content in _contents(packs, column, operation_id=operation_id, name__in=names):
            arrays[packs[pk]].append(thinning.read(content))
    return {
        key: thinning.thinned(thinning.joined(parts), widths.get(key, 1))
        for key, parts in arrays.items()
    }


def _contents(
    packs: Mapping[int, object], column: str, **which: Any
) -> Iterable[tuple[int, bytes]]:
    """Return a column of some packs, by their ids. Raises PacksChanged."""
    if not packs:
        return []
    # Django takes longer for a long list of ids than the database for the rows between them.
    wanted = Q(pk__in=packs) if len(packs) < FEW else Q(pk__range=(min(packs), max(packs)))
    rows = PackedPoints.objects.filter(wanted, **which).order_by().values_list("pk", column)
    found = [row for row in rows if row[0] in packs]
    if len(found) < len(packs):
        raise PacksChanged
    return found


class Columns(TypedDict):
    """Equally long lists; a value is text where it is not finite."""

    steps: list[int]
    values: list[float | str | None]


def columns(points: Points) -> Columns:
    values = points["value"].tolist()
    if not np.isfinite(points["value"]).all():
        values = [each if isfinite(each) else NOT_FINITE[str(each)] for each in values]
    return {"steps": points["step"].tolist(), "values": values}


def times(points: Points) -> list[datetime]:
    """Return when each point was measured; a float of seconds is exact until the year 2200."""
    return [datetime.fromtimestamp(each / 1e6, UTC) for each in points["at"].tolist()]


_COLUMNS = ("name", "attempt", "retired_by", "step", "value", "not_finite", "at")


def _arrays(rows: Iterable[tuple[Any, ...]]) -> dict[Key, Points]:
    """Return the points of each curve by step."""
    curves: dict[Key, list[tuple[int, float, int]]] = defaultdict(list)
    for name, attempt, retired_by, step, value, not_finite, at in rows:
        number = float(not_finite or "nan") if value is None else value
        curves[Key(name, attempt, retired_by)].append((step, number, (at - EPOCH) // MICROSECOND))
    return {key: thinning.joined([np.array(each, thinning.POINT)]) for key, each in curves.items()}
