"""Operations of several processes under a real supervisor: cancelled, lost and resumed."""

import os
import signal

import psutil
import pytest
from django.contrib.auth.models import User

from apps.checkpoints import storage
from apps.operations.lifecycle import Reason
from apps.operations.models import Attempt, MetricPoint
from apps.operations.placement import Device
from apps.operations.requests import services
from tests.operations.attempts import Running, run
from tests.waiting import has_ended
from trainops.media.names import SYSTEM
from trainops.runtime.checkpoint.manifest import read_manifest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.faults,
    pytest.mark.django_db(transaction=True),
]


@pytest.fixture(autouse=True)
def _two_slots(runtime):
    runtime.slots.count = 2


def submit(epochs=3, **config):
    config = {
        "recipe": "digits_loop",
        "processes": 2,
        "threads": 1,
        "checkpoint": {"self_check": False},
    } | config
    config["parameters"] = {"epochs": epochs, "batch_size": 256}
    return services.submit(kind="loop", config=config, owner=None)


def weights(operation):
    (final,) = storage.operation_directory(operation.pk).glob("*-final")
    return {each.name: each.blake3 for each in read_manifest(final).artifacts}


def curve(operation):
    points = MetricPoint.objects.filter(operation_id=operation.pk, retired_by=None)
    points = points.exclude(name__startswith=SYSTEM)
    return sorted(points.values_list("name", "step", "value"))


def ranks_of(running):
    """Return all processes of an attempt that has begun to train."""
    running.until_step(1)
    leader = psutil.Process(running.pid)
    return [leader, *leader.children(recursive=True)]


def test_a_cancel_saves_all_ranks_and_the_resume_ends_as_undisturbed(runtime):
    undisturbed = run(runtime, submit(epochs=150))
    assert undisturbed.state == "COMPLETED", undisturbed.error
    running = Running(runtime, submit(epochs=150))
    processes = ranks_of(running)
    assert runtime.slots.num_taken == 2
    assert not any(each.is_slot for each in runtime.slots.free_slots)
    running.held.stop = "cancel"
    cancelled = running.ended()
    assert cancelled.state == "CANCELLED" and 0 < cancelled.step < undisturbed.step
    assert all(has_ended(each) for each in processes)
    services.resume(operation_id=cancelled.pk, actor=superuser())
    resumed = run(runtime, cancelled)
    assert resumed.state == "COMPLETED"
    assert Attempt.objects.latest("id").receipt["exact"]
    assert weights(resumed) == weights(undisturbed) and curve(resumed) == curve(undisturbed)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_is_killed_restarts_the_operation(victim, runtime):
    running = Running(runtime, submit(epochs=5000))
    processes = ranks_of(running)
    os.kill(processes[victim].pid, signal.SIGKILL)
    operation = running.ended()
    assert (operation.state, operation.reason) == ("RESUMING", Reason.PROCESS_KILLED)
    assert operation.error["message"] == (
        "rank 1 ended by SIGKILL" if victim else "its process ended by SIGKILL"
    )
    assert all(has_ended(each) for each in processes)


def test_a_gpu_is_held_for_each_rank(runtime):
    """Without a GPU the ranks compute on the CPU."""
    runtime.slots.devices = (Device("GPU-1"), Device("GPU-2"))
    operation = run(runtime, submit(device="auto"))
    assert Attempt.objects.get().device == "GPU-1,GPU-2"
    assert operation.state == "COMPLETED", operation.error


def superuser():
    return User.objects.create_superuser("root")
