"""Curves read from packed points equal those of all points, whatever was resumed and cut."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from math import ceil, isfinite
from unittest.mock import Mock

import numpy as np
import pytest
from django.db import DatabaseError, connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.dashboard import figures
from apps.operations.attempts import branches
from apps.operations.attempts.report_writer import ReportWriter
from apps.operations.comparisons import curves
from apps.operations.models import Attempt, MetricPoint, Operation, PackedPoints
from apps.operations.points import metric_queries, new_points, packed_points, packing, thinning
from apps.operations.points.new_points import NewPoint
from apps.operations.points.packed_points import EPOCH
from tests.pages import making
from trainops.process.protocol import ProgressUpdate

START = datetime(2026, 1, 1, 12, 0, 0, 123_457, tzinfo=UTC)
NAMES = ("loss", "rarely")
VALUES = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, float("nan"), float("inf"), -float("inf")]),
    st.floats(allow_nan=False),
)


@dataclass
class Story:
    """An operation that measures and is resumed, as a drawn example tells it."""

    operation: Operation
    attempt: int = 1
    step: int = 0
    measured: set = field(default_factory=set)

    def measure(self, name, stride, values):
        step, points = self.step, []
        for value in values:
            step += stride
            if (name, step, self.attempt) in self.measured:
                continue
            self.measured.add((name, step, self.attempt))
            points.append(
                MetricPoint(
                    operation=self.operation, attempt=self.attempt, name=name, step=step,
                    value=value if isfinite(value) else None,
                    not_finite="" if isfinite(value) else str(value),
                    at=START + timedelta(microseconds=1_234_567 * len(self.measured)),
                )
            )  # fmt: skip
        MetricPoint.objects.bulk_create(points)
        if name == NAMES[0]:
            self.step = step

    def resume(self, attempt, share):
        """Start again within any of the attempts so far."""
        attempt, step = min(attempt, self.attempt), round(self.step * share)
        self.attempt += 1
        checkpoint = f"a{attempt:04}-s{step:010}-periodic"
        Attempt.objects.create(
            operation=self.operation, number=self.attempt, worker_id="w", from_step=step,
            measured_to=step, receipt={"checkpoint": checkpoint},
        )  # fmt: skip
        branches.stand(
            self.operation.pk, by=self.attempt, checkpoint=checkpoint, measured_to=step,
            from_step=step,
        )  # fmt: skip
        self.step = step


measure = st.tuples(
    st.just("measure"),
    st.sampled_from(NAMES),
    st.sampled_from([1, 2, 7, 1000]),
    st.lists(VALUES, min_size=1, max_size=40),
)
resume = st.tuples(st.just("resume"), st.integers(1, 4), st.floats(0, 1))
happenings = st.lists(st.one_of(measure, measure, st.just(("pack",)), resume), max_size=14)


def key(point):
    return point.name, point.attempt, point.retired_by or 0


def thinned(points, max_points):
    """Thin the points of one curve, as plainly as can be."""
    points = sorted(points, key=lambda point: point.step)
    if len(points) <= max_points:
        return points
    least = ceil((points[-1].step - points[0].step + 1) / max(1, max_points // 2))
    widths = sorted([*(2**n for n in range(40)), *(3 * 2**n for n in range(40))])
    width = next(each for each in widths if each >= least)
    kept = {points[-1].step: points[-1]}
    for _, group in groupby(points, key=lambda point: point.step // width):
        stretch = list(group)
        finite = [each for each in stretch if each.value is not None]
        broken = [each for each in stretch if each.value is None][:1]
        lowest = sorted(finite, key=lambda each: (each.value, each.step))[:1]
        highest = sorted(finite, key=lambda each: (-each.value, each.step))[:1]
        kept |= {each.step: each for each in lowest + highest + broken}
    return [kept[step] for step in sorted(kept)]


def plainly(operation, names, after_step, to_step, max_points):
    """Return the curves by a thinning of all points in this process."""
    points = [
        each
        for each in MetricPoint.objects.filter(operation=operation)
        if (not names or each.name in names)
        and (after_step is None or each.step > after_step)
        and (to_step is None or each.step <= to_step)
    ]
    expected = []
    for (name, attempt, retired_by), group in groupby(sorted(points, key=key), key=key):
        shown = thinned(group, max_points)
        expected.append(
            {
                "name": name,
                "attempt": attempt,
                "retired_by": retired_by or None,
                "steps": [each.step for each in shown],
                "values": [
                    metric_queries.NOT_FINITE[each.not_finite] if each.value is None else each.value
                    for each in shown
                ],
                "at": [each.at for each in shown],
            }
        )
    return expected


@pytest.fixture
def small(monkeypatch):
    """Rows and parts of a few points, so that short examples have many of them."""
    monkeypatch.setattr(packed_points, "PACK", 16)
    monkeypatch.setattr(packed_points, "AT_ONCE", 48)
    monkeypatch.setattr(packed_points, "COARSE", 4)
    monkeypatch.setattr(packed_points, "FEW", 2)
    monkeypatch.setattr(PackedPoints, "MAX_UNPACKED", 8)


@pytest.mark.django_db
@pytest.mark.slow
@pytest.mark.database
@pytest.mark.usefixtures("small")
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    happened=happenings,
    names=st.sampled_from([(), NAMES[:1], NAMES[1:]]),
    window=st.tuples(st.none() | st.integers(0, 300), st.none() | st.integers(0, 3000)),
    max_points=st.sampled_from([2, 5, 10, 30, 1000]),
)
def test_packed_points_give_the_curves_of_all_points(person, happened, names, window, max_points):
    after_step, to_step = window
    asked = {"names": names, "after_step": after_step, "to_step": to_step}
    asked |= {"max_points": max_points}
    with transaction.atomic():
        story = Story(making.operation(person))
        for what, *how in happened:
            if what == "pack":
                packed_points.pack_all(story.operation.pk)
            else:
                getattr(story, what)(*how)
        found = metric_queries.curves(story.operation.pk, **asked)
        assert found.series == plainly(story.operation, **asked)
        compared = curves.of([story.operation.pk])
        PackedPoints.objects.filter(operation=story.operation).delete()
        unpacked = metric_queries.curves(story.operation.pk, **asked)
        assert (found.series, found.is_thinned) == (unpacked.series, unpacked.is_thinned)
        assert compared == curves.of([story.operation.pk])
        if window == (None, None):
            assert found.last_id == unpacked.last_id
        transaction.set_rollback(True)


@given(st.integers(0, int(datetime(2200, 1, 1, tzinfo=UTC).timestamp() * 1e6)))
def test_times_of_packed_points_are_exact(microseconds):
    points = np.array([(0, 0.0, microseconds)], thinning.POINT)
    assert packed_points.times(points) == [EPOCH + timedelta(microseconds=microseconds)]


@pytest.fixture
def running(person, small):
    operation = making.operation(person, "RUNNING")
    making.attempt(operation)
    return operation


def report(writer, steps):
    points = tuple((step, 1e9 + step, {"loss": 1 / (step + 1)}) for step in steps)
    writer.progress(ProgressUpdate(max(steps), 1000, "", points))
    writer.flush()


def num_unpacked(operation):
    newest = PackedPoints.newest_id(operation.pk)
    return MetricPoint.objects.filter(operation=operation, id__gt=newest).count()


@pytest.mark.django_db
def test_a_writer_packs_its_points_and_leaves_few(running):
    writer = ReportWriter(running)
    for first in range(0, 200, 5):
        report(writer, range(first, first + 5))
        assert num_unpacked(running) < PackedPoints.MAX_UNPACKED
    report(writer, range(190, 200))  # again, and ignored
    for _ in range(3):
        report(
            ReportWriter.continued(running), range(200, 208)
        )  # each over HTTP, by a writer of its own
        assert num_unpacked(running) < PackedPoints.MAX_UNPACKED
    (curve,) = metric_queries.curves(running.pk).series
    assert curve["steps"] == list(range(208))


@pytest.mark.django_db
def test_a_flush_that_fails_packs_nothing(running, monkeypatch):
    writer = ReportWriter(running)
    with monkeypatch.context() as broken:
        broken.setattr(ReportWriter, "_write_log", Mock(side_effect=DatabaseError))
        writer.output.add(b"a line\n")
        with pytest.raises(DatabaseError):
            report(writer, range(20))
    assert not PackedPoints.objects.exists() and not MetricPoint.objects.exists()
    writer.flush()
    assert metric_queries.curves(running.pk).series[0]["steps"] == list(range(20))


@pytest.mark.django_db
def test_points_of_an_early_version_are_packed_later(person, small):
    old, short = (making.operation(person, "COMPLETED") for _ in range(2))
    making.curve(old, last=100)
    making.curve(short, last=5)
    before = metric_queries.curves(old.pk, max_points=10)
    assert packing.pack_left() == 1
    assert num_unpacked(old) < PackedPoints.MAX_UNPACKED and num_unpacked(short) == 5
    assert metric_queries.curves(old.pk, max_points=10) == before
    assert packing.pack_left() == 0


@pytest.mark.django_db
def test_packs_that_are_replaced_during_a_read_are_read_again(person, small, monkeypatch):
    operation = making.operation(person, "COMPLETED")
    making.curve(operation, last=100)
    before = metric_queries.curves(operation.pk)
    packed_points.pack_all(operation.pk)
    read = packed_points.read

    def late(*given):
        monkeypatch.setattr(packed_points, "read", read)
        packed_points.split(operation.pk, 1, 55)
        return read(*given)

    monkeypatch.setattr(packed_points, "read", late)
    assert metric_queries.curves(operation.pk) == before


@pytest.mark.django_db
@pytest.mark.parametrize("mode", ["min", "max"])
def test_the_best_value_and_a_comparison_are_the_same(person, small, mode):
    operation, other = (making.operation(person, "COMPLETED") for _ in range(2))
    operation.config |= {"monitor": "train_loss", "mode": mode}
    making.curve(operation, last=100)
    making.curve(other, last=100)
    MetricPoint.objects.filter(operation=operation, step=40).update(value=-1.0)
    MetricPoint.objects.filter(operation=operation, step__in=(50, 60)).update(value=9.0)

    def seen():
        (best,) = figures.bests(operation)
        return (best["value"], best["step"]), curves.of([operation.pk, other.pk])

    before = seen()
    assert before[0] == ((-1.0, 40) if mode == "min" else (9.0, 50))
    packed_points.pack_all(operation.pk)
    assert seen() == before


@pytest.mark.django_db
@pytest.mark.slow
@pytest.mark.database
def test_packing_reads_a_point_a_few_times_whatever_their_number(person, monkeypatch):
    """PostgreSQL knows nothing of new rows, and sorts all that may be among the oldest."""
    if connection.vendor != "postgresql":
        pytest.skip("SQLite does not count the rows that it reads, and reads them by their index")
    monkeypatch.setattr(packed_points, "AT_ONCE", 2048)
    operation, num_points = making.operation(person, "COMPLETED"), 40_000
    at = START.timestamp()
    points = [NewPoint.of(1, "loss", step, step / 7, at) for step in range(num_points)]
    new_points.write(operation.pk, points)
    before = points_read()
    packed_points.pack_all(operation.pk)
    assert num_unpacked(operation) < PackedPoints.MAX_UNPACKED
    assert points_read() - before < 3 * num_points


def points_read():
    """Return how many points this transaction has read by an index or from the table."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables"
            " WHERE relid = 'operations_metricpoint'::regclass"
        )
        return cursor.fetchone()[0]
