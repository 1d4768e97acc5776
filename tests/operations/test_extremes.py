"""Extremes of metrics: as points are written, after resumes, and of earlier versions."""

import random
from datetime import UTC, datetime

import pytest

from apps.operations.attempts.report_writer import ReportWriter
from apps.operations.models import MetricPoint, Operation
from apps.operations.points import extremes
from tests.operations import rows
from tests.operations.rows import claimed
from tests.pages import making
from trainops.process.protocol import ProgressUpdate

pytestmark = [pytest.mark.django_db, pytest.mark.database]
NAN, INF = float("nan"), float("inf")


def report(writer, step, **values):
    writer.progress(ProgressUpdate(step, 100, "", ((step, 0.0, values),)))
    writer.flush()


def stored(operation):
    return Operation.objects.values_list("extremes", flat=True).get(pk=operation.pk)


def test_extremes_are_those_of_all_points_that_were_written():
    operation = claimed()
    writer, draw = ReportWriter(operation), random.Random(3)  # noqa: S311 - the same every time
    for step in range(1, 30):
        values = {"loss": draw.choice([draw.gauss(0, 9), NAN, INF, -INF]), "system/x": 5.0}
        report(writer, step, **values)
        assert stored(operation) == extremes.measured(operation.pk)
    finite = [p.value for p in MetricPoint.objects.filter(name="loss") if p.value is not None]
    assert stored(operation) == {"loss": [min(finite), max(finite)]}


def test_another_process_continues_them():
    operation = claimed()
    report(ReportWriter(operation), 1, loss=2.0)
    again = Operation.objects.get(pk=operation.pk)
    report(ReportWriter(again), 2, loss=3.0, other=1.0)
    assert stored(operation) == {"loss": [2.0, 3.0], "other": [1.0, 1.0]}


def test_points_that_a_resume_retires_do_not_count():
    operation = claimed()
    writer = ReportWriter(operation)
    report(writer, 10, loss=2.0)
    report(writer, 20, loss=0.5, late=1.0)
    rows.retire(operation, by=2, after_step=10)
    assert extremes.measured(operation.pk) == {"loss": [2.0, 2.0]}
    MetricPoint.objects.update(retired_by=None)
    Operation.objects.filter(pk=operation.pk).update(attempt=2)
    resumed = ReportWriter(Operation.objects.get(pk=operation.pk))
    resumed.restored({"step": 0, "checkpoint": None, "exact": True, "items": []}, 0)
    assert stored(operation) == {}
    report(resumed, 1, loss=7.0)
    assert stored(operation) == {"loss": [7.0, 7.0]}


def test_operations_of_earlier_versions_are_counted_once():
    owner = making.person("ana", "operator")
    ended, active = making.operation(owner, "FAILED"), making.operation(owner, "PENDING")
    at = datetime(2026, 1, 1, tzinfo=UTC)
    for step, value in enumerate((3.0, 1.0, None, 2.0)):
        MetricPoint.objects.create(
            operation=ended, attempt=1, name="loss", step=step, value=value, at=at,
            not_finite="" if value else "nan",
        )  # fmt: skip
    Operation.objects.update(extremes=None)
    assert extremes.measure_left() == 1 and extremes.measure_left() == 0
    assert stored(ended) == {"loss": [1.0, 3.0]} and stored(active) is None


def test_a_running_operation_of_an_earlier_version_counts_its_own():
    operation = claimed()
    report(ReportWriter(operation), 1, loss=2.0)
    Operation.objects.update(extremes=None)
    report(ReportWriter(Operation.objects.get(pk=operation.pk)), 2, loss=5.0)
    assert stored(operation) == {"loss": [2.0, 5.0]}
