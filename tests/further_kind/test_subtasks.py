"""A kind that is not federated runs subtasks: in real processes, killed, and resumed exactly."""

import os
import signal
import sys

import pytest

from apps.operations.attempts import work
from apps.operations.attempts.children import ForkServer
from apps.operations.models import MetricPoint, Subtask
from apps.operations.requests import services
from apps.operations.scheduling.slots import Slots
from apps.operations.subtasks import services as subtasks
from tests.further_kind.installing import install_walks
from tests.further_kind.test_contract import forget
from tests.operations.attempts import Running, run
from tests.operations.distributed import FIRST, Round, curve, final, run_distributed
from tests.waiting import wait_until
from trainops.media.names import SYSTEM

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.database,
    pytest.mark.postgres,
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def forkserver(tmp_path_factory):
    """Children that find the kind `walks`, as this process does."""
    site = install_walks(tmp_path_factory.mktemp("site"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([site, os.environ.get("PYTHONPATH", "")]))
        patch.setattr(sys, "path", [site, *sys.path])
        forget()
        forkserver = ForkServer()
        forkserver.open()
        wait_until(lambda: forkserver.is_ready)
        yield forkserver
        forkserver.close()
    forget()


@pytest.fixture
def runtime(forkserver, settings, tmp_path):
    settings.CHECKPOINT_ROOT = tmp_path / "checkpoints"
    runtime = work.WorkerRuntime()
    runtime.worker_id, runtime.slots, runtime.forkserver = "worker-1", Slots(count=1), forkserver
    return runtime


def submit(placement, **config):
    return services.submit(kind="walks", config={"placement": placement, **config}, owner=None)


def require_same(done, whole):
    assert (whole.state, done.state) == ("COMPLETED", "COMPLETED"), done.error
    assert (done.result, final(done), curve(done)) == (whole.result, final(whole), curve(whole))
    points = MetricPoint.objects.filter(operation=done).exclude(name__startswith=SYSTEM)
    assert points.count() == whole.total_steps
    assert not Subtask.objects.exists()


def test_subtasks_of_any_kind_end_as_in_one_process(runtime):
    whole = run(runtime, submit("in_process"))
    going = Round(runtime, submit("distributed"))
    first, *_ = going.sent(3)
    assert str(first.subtask) == "walk 0 of stage 0" and first.name.endswith("· stage 0, walk 0")
    assert first.subtask.spec == {"scale": 1} and first.total_steps == 4
    require_same(going.to_its_end(), whole)


def test_a_killed_subtask_and_a_killed_parent_resume_to_the_same_result(runtime):
    slow = {"move_seconds": 0.1, "moves": 20, "stages": 1}
    whole = run(runtime, submit("in_process", **slow))
    going = Round(runtime, submit("distributed", **slow))
    victim = going.sent(3)[1]
    victim.row.update(priority=FIRST)
    running = Running(runtime, victim)
    wait_until(lambda: services.get(victim.pk).step >= 3)
    os.kill(running.pid, signal.SIGKILL)
    assert running.ended().state == "RESUMING"
    os.kill(going.server.pid, signal.SIGKILL)
    assert going.server.ended().state == "RESUMING"
    for each in (victim, going.operation):
        each.row.update(not_before=None)
    done = run_distributed(runtime, going.operation)
    assert done.attempt == 2
    require_same(done, whole)


def test_a_state_is_awaited_by_the_group_that_its_kind_names(runtime):
    done = run_distributed(runtime, submit("distributed"))
    last = {"stage": 2, "value": 0.0}
    assert not subtasks.is_awaited(done, last, 2), "its final checkpoint is of this group"
    assert subtasks.is_awaited(done, {"stage": 3, "value": 0.0}, 3)
