"""Measured points that are to be written: tuples, and one statement for many of them.

A model instance for each point takes four to six times as much processor time.
"""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple, Self

from django.db import connection

AT_ONCE = 5000  # points of one statement, which has a timeout
_INTO = (
    "INSERT INTO operations_metricpoint (operation_id, attempt, name, step, value, not_finite, at)"
)
_ARRAYS = (
    "SELECT %s, * FROM unnest(%s::int[], %s::text[], %s::bigint[], %s::float8[], %s::text[],"
    " %s::timestamptz[])"
)
_ROW = "VALUES (%s, %s, %s, %s, %s, %s, %s)"
_WHERE_MISSING = "ON CONFLICT DO NOTHING"


class NewPoint(NamedTuple):
    """One value of one metric at one step; the fields are those of MetricPoint."""

    attempt: int
    name: str
    step: int
    value: float | None
    not_finite: str
    at: datetime

    @classmethod
    def of(cls, attempt: int, name: str, step: int, value: float, at: float) -> Self:
        """Return the point of a value that may be not finite, measured at a Unix time."""
        moment = datetime.fromtimestamp(at, UTC)
        if math.isfinite(value):
            return cls(attempt, name, step, float(value), "", moment)
        return cls(attempt, name, step, None, str(value), moment)


def write(operation_id: str, points: Sequence[NewPoint]) -> None:
    """Insert points of an operation, without those of a metric, step and attempt that it has."""
    with connection.cursor() as cursor:
        for first in range(0, len(points), AT_ONCE):
            *others, at = zip(*points[first : first + AT_ONCE], strict=True)
            columns = [*others, [connection.ops.adapt_datetimefield_value(each) for each in at]]
            if connection.vendor == "postgresql":
                arrays = [list(each) for each in columns]
                cursor.execute(f"{_INTO} {_ARRAYS} {_WHERE_MISSING}", [operation_id, *arrays])
            else:
                rows = [(operation_id, *row) for row in zip(*columns, strict=True)]
                cursor.executemany(f"{_INTO} {_ROW} {_WHERE_MISSING}", rows)
