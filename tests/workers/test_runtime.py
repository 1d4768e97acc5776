"""The duties of a worker process outlive whatever goes wrong in one of their rounds."""

import os
import threading

import pytest
from django.db import InterfaceError, OperationalError

from apps.checkpoints import storage
from apps.datasets import services as datasets
from apps.operations.attempts import work
from apps.operations.attempts.pace import Pace
from apps.operations.lifecycle import State
from apps.operations.requests import services
from apps.operations.scheduling.slots import RunningAttempt, Slots
from apps.workers import load_meter, loops, registry, runtime
from apps.workers.loops import BackgroundLoops
from apps.workers.models import LoadSample, Worker
from apps.workers.runtime import WorkerProcess
from tests.operations.rows import claimed
from tests.waiting import wait_until
from tests.workers.conftest import give_up
from trainops.clock import seconds_from_now
from trainops.process.protocol import now


@pytest.fixture
def worker_process(db):
    """A worker process's life, without its threads."""
    runtime = work.WorkerRuntime()
    runtime.worker_id = "w"
    runtime.slots = Slots(count=1)
    return WorkerProcess(runtime)


@pytest.mark.parametrize("error", [OperationalError, InterfaceError, RuntimeError, KeyError])
def test_a_duty_continues_after_a_round_that_failed(error, transactional_db):
    rounds, went_on = [], threading.Event()
    loops = BackgroundLoops()

    def task():
        rounds.append(1)
        if len(rounds) < 3:
            raise error("not this time\nfor more than one reason")
        went_on.set()

    loops.start(0.01, task, "test")
    try:
        assert went_on.wait(10)
    finally:
        loops.are_stopped.set()
    assert f", test: {error.__name__}: " in loops.trouble
    assert "not this time" in loops.trouble


def test_what_failed_is_tried_again_after_growing_pauses_that_differ():
    pauses = {n: [loops.retry_pause(n) for _ in range(200)] for n in range(1, 40)}
    assert all(1 <= pause <= 30 for each in pauses.values() for pause in each)
    means = [sum(pauses[n]) / 200 for n in range(1, 7)]
    assert means == sorted(means)
    assert means[0] < 1.2 and means[5] > 25
    assert all(len(set(each)) > 50 for each in pauses.values())


def test_a_heartbeat_that_finds_the_row_gone_registers_at_once(worker_process):
    worker_process._say_alive()
    worker = Worker.objects.get()
    assert (worker.worker_id, worker.pid, worker.is_draining) == ("w", os.getpid(), False)
    worker_process.runtime.slots.is_draining = True  # an admin said so; then the row was lost
    worker.delete()
    worker_process._say_alive()
    assert Worker.objects.get().is_draining is True


def test_a_heartbeat_has_the_load_of_the_machine_once_a_minute(worker_process, monkeypatch):
    worker_process._be_registered()
    worker_process._keep_leases()
    assert not LoadSample.objects.exists()
    monkeypatch.setattr(load_meter, "SAMPLE_SECONDS", 0.0)
    worker_process._keep_leases()
    (sample,) = LoadSample.objects.filter(worker_id="w")
    assert sample.memory_bytes > 0


def test_a_drain_that_an_admin_requested_reaches_the_slots(worker_process):
    worker_process._be_registered()
    registry.drain(worker_id="w", reason="to be repaired")
    worker_process._keep_leases()
    assert worker_process.runtime.offer().free_slots == ()
    registry.undrain(worker_id="w")
    worker_process._keep_leases()
    assert [free_slot.is_slot for free_slot in worker_process.runtime.offer().free_slots] == [
        True,
        False,
    ]


def test_what_went_wrong_last_is_reported_once_the_registry_is_there_again(worker_process):
    worker_process._be_registered()
    worker_process.loops.trouble = "the database was away"
    worker_process._say_alive()
    assert (registry.get("w").last_error, worker_process.loops.trouble) == (
        "the database was away",
        None,
    )
    worker_process._say_alive()
    assert registry.get("w").last_error == "the database was away"
    Worker.objects.all().delete()
    worker_process.loops.trouble = "its row was gone"
    worker_process._be_registered()
    assert (registry.get("w").last_error, worker_process.loops.trouble) == (
        "its row was gone",
        None,
    )


@pytest.mark.parametrize(("seconds_ago", "is_lost"), [(1, False), (41, True)])
def test_what_a_restored_database_says_is_lost_continues_if_it_was_never_out_of_sight(
    worker_process, seconds_ago, is_lost
):
    operation = give_up(claimed(worker_id="w"), "on_worker_loss")
    with worker_process.runtime.slots.hold(
        RunningAttempt(operation.pk, 1, "", now() - seconds_ago)
    ) as held:
        worker_process._keep_leases()
    assert held.is_lost == is_lost
    state = State.RESUMING if is_lost else State.RUNNING
    assert services.get(operation.pk).state == state


def test_a_storage_that_does_not_answer_does_not_delay_requests(worker_process, monkeypatch):
    worker_process._look_at_storage()
    monkeypatch.setattr(storage, "free_bytes", lambda: pytest.fail("it would wait for ever"))
    operation = claimed(worker_id="w")
    operation.row.update(stop_requested="KILL")
    with worker_process.runtime.slots.hold(RunningAttempt(operation.pk, 1, "", now())) as held:
        worker_process._read_stop_requests()
    assert held.stop == "KILL"


def test_a_dataset_storage_that_does_not_answer_holds_up_no_look_at_checkpoints(
    worker_process, settings, monkeypatch
):
    worker_process._be_registered()
    settings.THRESHOLDS = settings.THRESHOLDS.model_copy(
        update={"health_check_timeout_seconds": 0.01}
    )
    asked, answers = threading.Event(), threading.Event()
    monkeypatch.setattr(datasets, "problem", lambda: asked.set() or (answers.wait(60) and ""))
    look = worker_process.runtime.dataset_look
    looking = threading.Thread(target=look.look)
    looking.start()
    assert asked.wait(60)
    wait_until(lambda: look.problem)
    worker_process._look_at_storage()
    worker = registry.get("w")
    assert "has not responded" in worker.dataset_problem
    assert (worker.storage_problem, worker.storage_free_bytes > 0) == ("", True)
    assert worker_process.runtime.offer().has_datasets is False
    answers.set()
    looking.join()
    worker_process._look_at_storage()
    assert registry.get("w").dataset_problem == ""


def test_who_runs_something_in_a_seat_alone_is_busy(worker_process):
    operation = claimed(worker_id="w")
    with worker_process.runtime.slots.hold(
        RunningAttempt(operation.pk, 1, "", now(), takes_slot=False)
    ):
        worker_process._be_registered()
    worker = registry.get("w")
    assert (worker.status, worker.num_running) == ("BUSY", 0)


def test_a_heartbeat_learns_how_large_the_installation_is(worker_process, monkeypatch):
    monkeypatch.setattr(runtime, "PACE", pace := Pace())
    for number in range(3):
        registry.register(worker_id=f"other{number}", num_running=2)
    Worker.objects.filter(pk="other2").update(heartbeat_at=seconds_from_now(-601))  # it is gone
    worker_process._be_registered()
    worker_process._say_alive()
    assert (pace.num_workers, pace.num_running) == (3, 4)


def test_a_loop_asks_for_its_interval_after_each_round():
    rounds, loops, intervals = [], BackgroundLoops(), iter([0.01, 0.01, 0.01, 3600.0])
    slept = threading.Event()

    def interval():
        seconds = next(intervals)
        if seconds > 1:
            slept.set()
        return seconds

    loops.start(interval, lambda: rounds.append(1), "test", longest_pause=1.0)
    assert slept.wait(10)
    loops.are_stopped.set()
    assert len(rounds) == 4
