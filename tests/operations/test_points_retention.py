"""Long curves of operations that ended long ago keep the points that charts show."""

import random
from datetime import UTC, datetime, timedelta

import pytest
from django.db import DatabaseError
from django.db.models import F
from django.utils import timezone

from apps.operations.lifecycle import State
from apps.operations.models import MetricPoint, Operation, PackedPoints, Study
from apps.operations.points import metric_queries, packed_points, retention
from tests.operations import rows

pytestmark = [pytest.mark.django_db, pytest.mark.database]
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def ten_days(settings):
    settings.THRESHOLDS = settings.THRESHOLDS.model_copy(update={"points_full_days": 10})


def ended(days, *, state=State.COMPLETED, num_points=5000, seed=1):
    """Return an operation with a long curve, a long retired one, and a short one."""
    operation = rows.in_state(state)
    Operation.objects.filter(pk=operation.pk).update(
        finished_at=timezone.now() - timedelta(days=days)
    )
    drawing = random.Random(seed)  # noqa: S311
    points = [
        MetricPoint(
            operation_id=operation.pk, attempt=attempt, retired_by=retired_by, name=name, step=step,
            at=MOMENT, **value(drawing),
        )
        for name, attempt, retired_by, number in (
            ("loss", 2, None, num_points), ("loss", 1, 2, num_points), ("accuracy", 2, None, 7),
        )
        for step in range(number)
    ]  # fmt: skip
    MetricPoint.objects.bulk_create(points)
    packed_points.pack_all(operation.pk)
    return operation


def value(drawing):
    number = drawing.gauss(0, 1)
    if drawing.random() < 0.001:
        return {"value": None, "not_finite": "nan"}
    return {"value": number, "not_finite": ""}


def shown(operation):
    return metric_queries.curves(operation.pk, max_points=retention.MAX_POINTS).series


def num_points(operation):
    return MetricPoint.objects.filter(operation_id=operation.pk).count()


@pytest.mark.parametrize("seed", range(3))
def test_the_chart_of_the_whole_curve_stays_as_it_was(seed):
    operation = ended(11, seed=seed)
    before, number = shown(operation), num_points(operation)
    assert retention.thin_old() == 1
    assert shown(operation) == before
    assert num_points(operation) == sum(len(each["steps"]) for each in before) < number
    assert retention.thin_old() == 0  # and nothing more is deleted later
    assert shown(operation) == before


def test_extreme_and_last_points_are_kept():
    operation = ended(11)
    points = MetricPoint.objects.filter(operation_id=operation.pk, name="loss", attempt=2)
    values = dict(points.values_list("step", "value"))
    finite = {step: value for step, value in values.items() if value is not None}
    wanted = {max(values), max(finite, key=finite.get), min(finite, key=finite.get)}
    wanted |= {min(values.keys() - finite.keys())} if len(finite) < len(values) else set()
    retention.thin_old()
    assert wanted <= set(points.values_list("step", flat=True))


@pytest.mark.parametrize(
    ("days", "state"), [(9, State.COMPLETED), (11, State.RUNNING), (11, State.PENDING)]
)
def test_of_others_all_points_stay(days, state):
    operation = ended(days, state=state)
    number = num_points(operation)
    assert retention.thin_old() == 0
    assert num_points(operation) == number


def test_by_default_all_points_stay(settings):
    settings.THRESHOLDS = settings.THRESHOLDS.model_copy(update={"points_full_days": 0})
    operation = ended(10_000)
    number = num_points(operation)
    assert retention.thin_old() == 0
    assert num_points(operation) == number


def test_short_curves_stay_whole():
    operation = ended(11, num_points=900)
    retention.thin_old()
    assert num_points(operation) == 900 + 900 + 7


@pytest.mark.parametrize("batch", [0, 1, 3, 8])
def test_an_interrupted_run_is_continued_by_the_next_one(batch, monkeypatch):
    operation = ended(11)
    before, count = shown(operation), 0
    is_locked = retention._is_locked

    def killed(*given):
        nonlocal count
        count += 1
        if count > batch:
            raise DatabaseError("killed")
        return is_locked(*given)

    monkeypatch.setattr(retention, "_is_locked", killed)
    with pytest.raises(DatabaseError):
        retention.thin_old()
    assert shown(operation) == before
    monkeypatch.setattr(retention, "_is_locked", is_locked)
    assert retention.thin_old() == 1
    assert shown(operation) == before


def test_an_operation_that_is_resumed_meanwhile_keeps_the_rest(monkeypatch):
    operation = ended(11, state=State.FAILED)
    is_locked, left = retention._is_locked, []

    def resumed(*given):
        found = is_locked(*given)
        Operation.objects.filter(pk=operation.pk).update(state=State.RESUMING, finished_at=None)
        left.append(num_points(operation))
        return found

    monkeypatch.setattr(retention, "_is_locked", resumed)
    assert retention.thin_old() == 0
    assert num_points(operation) >= left[0] - retention.AT_ONCE
    assert PackedPoints.objects.filter(operation_id=operation.pk).exists()


def test_an_operation_whose_points_are_retired_meanwhile_keeps_them(monkeypatch):
    operation = ended(11, state=State.FAILED)
    number, read = num_points(operation), metric_queries.Packed.points

    def resumed(*given):
        found = read(*given)
        Operation.objects.filter(pk=operation.pk).update(state=State.RESUMING, finished_at=None)
        own = MetricPoint.objects.filter(operation_id=operation.pk, attempt=2)
        own.filter(step__gt=100).update(retired_by=3)
        return found

    monkeypatch.setattr(metric_queries.Packed, "points", resumed)
    assert retention.thin_old() == 0
    assert num_points(operation) == number


def test_a_curve_of_many_points_that_are_not_finite_is_thinned_once(monkeypatch):
    operation = ended(11, num_points=9000)
    own = MetricPoint.objects.filter(operation_id=operation.pk)
    for step in range(3):
        values = {"value": None, "not_finite": "nan"} if step == 2 else {"value": float(step)}
        own.annotate(rest=F("step") % 3).filter(rest=step).update(**values)
    PackedPoints.objects.filter(operation_id=operation.pk).delete()
    packed_points.pack_all(operation.pk)
    assert retention.thin_old() == 1
    packs = set(PackedPoints.objects.values_list("pk", flat=True))
    assert num_points(operation) > 2 * retention.MAX_POINTS
    assert retention.thin_old() == 0
    assert set(PackedPoints.objects.values_list("pk", flat=True)) == packs


def test_trials_keep_their_points_while_their_study_runs():
    study = Study.objects.create(
        id="st_1",
        name="s",
        kind="training",
        owner=rows.submitted().owner,
        config={},
        design={},
        submission={},
        metric="loss",
        mode="min",
        num_planned=2,
    )
    operation, other = ended(11), rows.submitted()
    trials = Operation.objects.filter(pk__in=[operation.pk, other.pk])
    trials.update(study=study)
    assert retention.thin_old() == 0
    Operation.objects.filter(pk=other.pk).update(state=State.CANCELLED, finished_at=timezone.now())
    assert retention.thin_old() == 1
