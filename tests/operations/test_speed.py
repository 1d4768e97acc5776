"""The speed of attempts in the database: points like others, and no part of any outcome."""

import pytest

from apps.operations.comparisons.curves import of as compare
from apps.operations.models import LogChunk, MetricPoint
from apps.operations.points import extremes
from apps.operations.requests import services
from tests.operations.attempts import Running, run, submit
from tests.operations.test_supervisor import curve, weights
from trainops.media.names import CLIENTS, SYSTEM
from trainops.process import process_use

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]
NAMES = {"system/samples_per_second", "system/data_wait_share"}
USE = {"system/cpu_percent", "system/memory_bytes"}


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr(process_use, "LEAST_SECONDS", 0.02)


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
        assert set(points.values_list("name", flat=True)) == NAMES | USE
        points = points.filter(name__in=NAMES)
        assert points.filter(step=last).count() == len(NAMES)
        assert all(point.value >= 0 for point in points)
        # A stop within a validation has the points of its step measured again.
        assert all(point.step == last for point in points if point.retired_by)
    assert done.attempts.get(number=2).receipt["exact"]
    assert "train_loss" in done.metrics and not (NAMES | USE) & done.metrics.keys()
    assert SYSTEM not in str(done.result)
    whole = run(runtime, submit(epochs=6))
    assert weights(done) == weights(whole) and done.result == whole.result
    assert curve(done) == curve(whole)


def test_a_kind_without_a_speed_has_points_of_its_processor_and_memory(runtime, person):
    config = {"recipe": "grid_corridor", "environment_steps": 2000}
    operation = services.submit(kind="rl", config=config, owner=person)
    assert run(runtime, operation).state == "COMPLETED"
    points = MetricPoint.objects.filter(operation=operation, name__startswith=SYSTEM)
    assert set(points.values_list("name", flat=True)) == USE
    memory = points.filter(name="system/memory_bytes").values_list("value", flat=True)
    assert all(value > 50e6 for value in memory)  # an interpreter with torch


def test_points_of_single_clients_are_no_metrics_of_their_operation(runtime, person):
    config = {"recipe": "federated_digits", "rounds": 2, "clients": 2, "threads": 1}
    operations = [services.submit(kind="federated", config=config, owner=person) for _ in range(2)]
    done = [run(runtime, operation) for operation in operations]
    assert [each.state for each in done] == ["COMPLETED"] * 2
    names = set(MetricPoint.objects.filter(operation=done[0]).values_list("name", flat=True))
    of_clients = {name for name in names if name.startswith(CLIENTS)}
    assert {"clients/0/train_loss", "clients/1/train_loss"} <= of_clients
    assert {"train_loss", "val_loss"} <= done[0].metrics.keys()
    assert not of_clients & (done[0].metrics.keys() | done[0].extremes.keys())
    assert extremes.measured(done[0].pk) == done[0].extremes
    compared = compare([each.pk for each in done]).metrics
    assert "train_loss" in str(compared) and CLIENTS not in str(compared)
    log = "".join(LogChunk.objects.filter(operation=done[0]).values_list("text", flat=True))
    assert "round 2" in log and CLIENTS not in log
