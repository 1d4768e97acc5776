"""Numbers about the whole installation, and what they cost."""

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.operations.lifecycle import State
from apps.operations.models import Attempt
from apps.workers import registry
from apps.workers.models import Worker
from tests.api.answers import data
from tests.api.saved import WEIGHTS, saved
from tests.operations.rows import in_state, subtask_of
from trainops.kind import KINDS

pytestmark = pytest.mark.database


def attempt(operation, *, started, ended, device="", number=1):
    """An attempt that started and ended N hours ago; None: it runs."""
    now = timezone.now()
    Attempt.objects.create(
        operation=operation,
        number=number,
        worker_id="worker-1",
        device=device,
        started_at=now - timedelta(hours=started),
        ended_at=None if ended is None else now - timedelta(hours=ended),
    )


def training(stats):
    (found,) = [each for each in stats["kinds"] if each["kind"] == "training"]
    return found


def test_an_empty_installation_has_zeros_of_every_kind(viewer):
    stats = data(viewer.get("stats"))
    assert [each["kind"] for each in stats["kinds"]] == list(KINDS)
    assert all(set(each["states"]) == set(State.values) for each in stats["kinds"])
    assert stats["datasets"] == {"num_datasets": 0, "size_bytes": 0}
    assert (stats["workers"]["num_slots"], stats["workers"]["num_running"]) == (0, 0)
    assert training(stats)["compute_hours"] == 0


def test_operations_are_counted_by_state_without_subtasks_and_storage_by_kind(viewer):
    parent = in_state(State.RUNNING)
    for state in (State.FAILED, State.FAILED, State.COMPLETED):
        in_state(state)
    subtask_of(parent, State.RUNNING)
    saved(parent)
    found = training(data(viewer.get("stats")))
    assert {state: number for state, number in found["states"].items() if number} == {
        "RUNNING": 1, "FAILED": 2, "COMPLETED": 1,
    }  # fmt: skip
    assert found["num_checkpoints"] == 1
    assert found["checkpoint_bytes"] >= len(WEIGHTS)


def test_hours_are_those_of_the_last_days_times_processes_and_gpus(viewer):
    one, two = in_state(State.RUNNING), in_state(State.RUNNING)
    two.row.update(processes=2)
    attempt(one, started=3, ended=1)  # 2 hours on a CPU
    attempt(one, started=7 * 24 + 5, ended=7 * 24 - 4, number=2)  # 4 of 9 hours are in the window
    attempt(one, started=7 * 24 + 5, ended=7 * 24 + 4, number=3)  # none is
    attempt(two, started=1.5, ended=None, device="GPU-a,GPU-b")  # still running
    coordinator = in_state(State.RUNNING)
    coordinator.row.update(takes_slot=False)
    attempt(coordinator, started=5, ended=1)
    found = training(data(viewer.get("stats")))
    assert found["compute_hours"] == pytest.approx(2 + 4 + 2 * 1.5, abs=0.01)
    assert found["gpu_hours"] == pytest.approx(2 * 1.5, abs=0.01)


def test_slots_are_those_of_workers_that_are_present(viewer):
    for number in range(2):
        registry.register(worker_id=f"w{number}", kinds=["training"], slots=4)
    Worker.objects.filter(pk="w0").update(num_running=3)
    registry.register(worker_id="gone", kinds=["training"], slots=4)
    Worker.objects.filter(pk="gone").update(heartbeat_at=timezone.now() - timedelta(days=1))
    workers = data(viewer.get("stats"))["workers"]
    assert (workers["num_slots"], workers["num_running"]) == (8, 3)
    assert {name: number for name, number in workers["statuses"].items() if number} == {
        "AVAILABLE": 1, "BUSY": 1, "GONE": 1,
    }  # fmt: skip


def test_the_number_of_queries_does_not_grow(viewer, django_assert_num_queries):
    for number in range(3):
        operation = in_state(State.COMPLETED)
        saved(operation)
        attempt(operation, started=2, ended=1)
        registry.register(worker_id=f"w{number}", kinds=["training"])
    viewer.get("stats")
    with django_assert_num_queries(8):  # session, user, role; the five of the statistics
        viewer.get("stats")
