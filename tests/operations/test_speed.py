"""The speed of attempts in the database: points like others, and no part of any outcome."""

import pytest

from apps.operations.models import MetricPoint
from apps.operations.requests import services
from tests.operations.attempts import Running, run, submit
from tests.operations.test_supervisor import curve, weights
from trainops.runtime.throughput import SYSTEM

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]
NAMES = {"system/samples_per_second", "system/data_wait_share"}


def measured(operation, attempt):
    points = MetricPoint.objects.filter(operation=operation, attempt=attempt)
    return points.filter(name__startswith=SYSTEM)


def test_every_attempt_has_points_of_its_speed_and_its_outcome_has_none(runtime, person):
    operation = submit(epochs=6, step_seconds=0.05)
    running = Running(runtime, operation).until_step(3)
    services.cancel(operation_id=operation.pk, actor=person)
    running.held.stop = operation.Stop.CANCEL
    stopped = running.ended()
    assert stopped.state == "CANCELLED"
    services.resume(operation_id=operation.pk, actor=person)
    done = run(runtime, services.get(operation.pk))
    assert done.state == "COMPLETED"
    for attempt, last in ((1, stopped.step), (2, done.step)):
        points = measured(operation, attempt)
        assert set(points.values_list("name", flat=True)) == NAMES
        assert points.filter(step=last).count() == len(NAMES)
        assert all(point.value >= 0 for point in points)
        # A stop within a validation has the points of its step measured again.
        assert all(point.step == last for point in points if point.retired_by)
    assert done.attempts.get(number=2).receipt["exact"]
    assert "train_loss" in done.metrics and not NAMES & done.metrics.keys()
    assert SYSTEM not in str(done.result)
    whole = run(runtime, submit(epochs=6))
    assert weights(done) == weights(whole) and done.result == whole.result
    assert curve(done) == curve(whole)
