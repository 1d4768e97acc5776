"""Rows of one operation in the order of their ids, through an index of these columns.

PostgreSQL assumes that the ids of an operation are spread over those of the table. For an
operation that has a large part of the rows it would therefore read by the index of the ids alone,
past all rows of other operations that are newer or older. Only an index of all columns serves a
comparison of tuples. Where further conditions make it expect few rows, it may read the whole table:
read a page of rows, and look through these.

SQLite uses the first column of a comparison of tuples only, and would read all rows of the
operation; it compares each column.
"""

from typing import Any, TypeVar

from django.db import connection
from django.db.models import F, Func, Model, Q, QuerySet, TextField, Value
from django.db.models.lookups import GreaterThan, LessThanOrEqual

M = TypeVar("M", bound=Model)
R = TypeVar("R")
NO_ID_IS_HIGHER = (1 << 63) - 1


class _Tuple(Func):
    template = "(%(expressions)s)"
    output_field = TextField()


def between(after: int = 0, until: int = NO_ID_IS_HIGHER, **keys: Any) -> Q:
    """Return the condition that columns have these values, and the id is above `after`.

    keys: the columns before `id` in an index, in its order; values or expressions.
    """
    if connection.vendor == "sqlite":
        return Q(**keys, id__gt=after, id__lte=until)
    columns = _Tuple(*map(F, keys), F("id"))
    values = [
        each if hasattr(each, "resolve_expression") else Value(each) for each in keys.values()
    ]
    lowest, highest = (_Tuple(*values, Value(each)) for each in (after, until))
    return Q(GreaterThan(columns, lowest), LessThanOrEqual(columns, highest))


def oldest_first(
    rows: QuerySet[M, R], after: int = 0, until: int = NO_ID_IS_HIGHER, **keys: Any
) -> QuerySet[M, R]:
    """Return the rows with these keys and an id above `after`; see `between`."""
    return rows.filter(between(after, until, **keys)).order_by(*keys, "id")


def newest_first(
    rows: QuerySet[M, R], after: int = 0, until: int = NO_ID_IS_HIGHER, **keys: Any
) -> QuerySet[M, R]:
    """Return the rows of `oldest_first` in the opposite order."""
    return oldest_first(rows, after, until, **keys).reverse()
