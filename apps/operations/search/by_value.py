"""Latest values of metrics are found by their index, without `Operation.metrics` of all others.

The operations are named by their ids: PostgreSQL does not know how few of them lack rows of values,
and would read all.
"""

from collections.abc import Callable
from typing import Any

from django.db.models import Case, F, Q, Value, lookups

from apps.operations.indexes import LACKS_VALUES
from apps.operations.models import LatestValue, Operation, OperationQuerySet
from apps.operations.search.sorting import value_of
from apps.operations.search.values import Named, is_latest

FEW = 1000  # operations that a query names


def compared(value: Named, lookup: Callable[..., Any], number: float, holds: Case) -> Q:
    """Return a condition that is true for the same operations as `holds`.

    holds: this comparison of the latest value of a metric. Where it is true for many operations, a
    page of the list has enough without a look at all others.
    """
    by_row = LatestValue.objects.filter(lookup(F("value"), Value(number)), name=value.name)
    ids = list(by_row.order_by().values_list("operation_id", flat=True)[: FEW + 1])
    others = _lacking(Q(holds))
    if len(ids) > FEW or len(others) > FEW:
        return Q(holds)
    return Q(~LACKS_VALUES, pk__in=ids) | Q(pk__in=others)


def leading(found: OperationQuerySet, sort: str, stop: int) -> OperationQuerySet:
    """Return some of `found`, of which the first `stop` in the order `sort` are the first of all.

    Few where `sort` is a metric whose best values differ; else all of `found`.
    """
    value = value_of(sort)
    if not is_latest(value):
        return found
    is_known = lookups.IsNull(value.number, False)
    others = _lacking(Q(is_known))
    if len(others) > FEW:
        return found
    is_descending = sort.startswith("-")
    by_row = LatestValue.objects.filter(name=value.name)
    in_order = by_row.order_by("-value" if is_descending else "value")
    first = list(in_order.values_list("operation_id", "value")[:FEW])
    some = found.filter(pk__in={*others, *(pk for pk, _ in first)})
    if len(first) < FEW:
        is_before_the_rest: Any = is_known
    else:  # the rest may be as good as the last of these, but not better
        is_better = lookups.GreaterThan if is_descending else lookups.LessThan
        is_before_the_rest = is_better(value.number, Value(first[-1][1]))
    return some if some.filter(is_before_the_rest).count() >= stop else found


def _lacking(condition: Q) -> list[str]:
    """Return the ids of operations without rows of values that fulfil a condition; at most some."""
    lacking = Operation.objects.filter(LACKS_VALUES, condition).order_by()
    return list(lacking.values_list("pk", flat=True)[: FEW + 1])
