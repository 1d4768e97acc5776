"""Rows of one operation by their ids: which they are, and by which index they are read."""

import random
from datetime import UTC, datetime

import pytest
from django.db import connection

from apps.operations.id_order import newest_first, oldest_first
from apps.operations.models import LogChunk, MetricPoint
from apps.operations.points import metric_queries
from tests.operations.rows import submitted

pytestmark = [pytest.mark.django_db, pytest.mark.database]
NUM_ROWS = 30_000  # of each operation: PostgreSQL reads a smaller table as a whole
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("seed", range(8))
def test_they_are_those_of_the_operation_and_attempt_between_two_ids(seed):
    drawing = random.Random(seed)  # noqa: S311
    ids = [submitted().pk for _ in range(3)]
    for _ in range(60):
        attempt = drawing.randint(1, 2)
        LogChunk.objects.create(operation_id=drawing.choice(ids), attempt=attempt, text="a line\n")
    first, last = sorted(drawing.choices(list(LogChunk.objects.values_list("pk", flat=True)), k=2))
    for keys in ({"operation_id": ids[0]}, {"operation_id": ids[1], "attempt": 2}):
        plain = LogChunk.objects.filter(**keys, pk__gt=first, pk__lte=last)
        rows = LogChunk.objects.all()
        assert list(oldest_first(rows, first, last, **keys)) == list(plain.order_by("pk"))
        assert list(newest_first(rows, first, last, **keys)) == list(plain.order_by("-pk"))
        everything = list(LogChunk.objects.filter(**keys).order_by("pk"))
        assert list(oldest_first(rows, **keys)) == everything


def test_rows_of_other_operations_are_not_read():
    older, newer = (submitted().pk for _ in range(2))
    for each in (older, newer):
        MetricPoint.objects.bulk_create(
            MetricPoint(operation_id=each, attempt=1, name="loss", step=step, value=1.0, at=MOMENT)
            for step in range(NUM_ROWS)
        )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE operations_metricpoint")
    points, last_id = MetricPoint.objects.all(), _last_id(older)
    # SQLite names the columns by which it searches; PostgreSQL an index, of all columns or another.
    by = {"sqlite": " (operation_id=? AND id>? AND id<?)"}.get(connection.vendor, "")
    for found in (
        oldest_first(points, last_id, operation_id=older)[:2000],
        oldest_first(points, operation_id=newer)[:2000],
        newest_first(points, operation_id=older)[:1],
    ):
        assert f"points_since{by}" in found.explain(), found.explain()
    assert metric_queries.curves(older, after_id=last_id).series == []


def _last_id(operation_id):
    return MetricPoint.objects.filter(operation_id=operation_id).order_by("-pk")[0].pk
