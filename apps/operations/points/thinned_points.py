"""Thinning of metric points by the database; `thinning` does the same with packed points."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from django.db.models import BigIntegerField, Case, F, Q, QuerySet, Value, When, Window
from django.db.models.functions import RowNumber

from apps.operations.models import MetricPoint

if TYPE_CHECKING:
    from django.db.models.expressions import CombinedExpression


def thinned(
    points: QuerySet[MetricPoint], spans: Mapping[str, tuple[int, int]], max_points: int
) -> QuerySet[MetricPoint]:
    """Return at most about `max_points` points of each curve.

    points: those of one operation, in which each metric of `spans` has one curve.
    spans: the first and the last step of the curves to return, by metric.

    Of each stretch of steps the lowest, the highest and a non-finite point are kept, and of each
    curve the last; of equal points the first.
    """
    widths = {name: width_of(low, high, max_points) for name, (low, high) in spans.items()}
    # A stretch is a whole number divided by another: every database rounds down.
    stretch: list[F | CombinedExpression] = [F("name"), F("step") / _by_name(widths)]
    orders = {
        "lowest": F("value").asc(nulls_last=True),
        "highest": F("value").desc(nulls_last=True),
        "broken": F("value").asc(nulls_first=True),
    }
    ranks = {
        rank: Window(RowNumber(), partition_by=stretch, order_by=[order, F("step").asc()])
        for rank, order in orders.items()
    }
    is_last = Q(step=_by_name({name: high for name, (_, high) in spans.items()}))
    ranked = points.filter(name__in=widths).annotate(**ranks)
    return ranked.filter(Q(lowest=1) | Q(highest=1) | Q(broken=1) | is_last)


def width_of(low: int, high: int, max_points: int) -> int:
    """Return how many steps a thinned curve shows by two points: 2ⁿ or 3 · 2ⁿ."""
    least = math.ceil((high - low + 1) / max(1, max_points // 2))
    power = 1 << (least - 1).bit_length()
    return power * 3 // 4 if power >= 4 and power * 3 // 4 >= least else power


def _by_name(numbers: Mapping[str, int]) -> Case:
    whens = [When(name=name, then=Value(number)) for name, number in numbers.items()]
    return Case(*whens, output_field=BigIntegerField())
