"""Slots and GPUs of one worker: no GPU is promised twice, and none is held without use."""

import threading
from contextlib import ExitStack

import pytest
from django.db import connection

from apps.operations.attempts import work
from apps.operations.models import Attempt, Operation
from apps.operations.placement import GB, Device, FreeSlot
from apps.operations.scheduling.slots import RunningAttempt, Slots
from tests.operations import rows
from trainops.process.protocol import now
from trainops.serving import NUM_WAIT_SLOTS

GPUS = (Device("GPU-1", 24 * GB), Device("GPU-2", 80 * GB))


class ReadyForkServer:
    """Children are not what these tests are about."""

    is_ready = True


@pytest.fixture
def runtime(monkeypatch):
    runtime = work.WorkerRuntime()
    runtime.worker_id, runtime.forkserver = "w", ReadyForkServer()
    runtime.slots = Slots(count=4, devices=GPUS)
    return runtime


def test_a_gpu_is_free_when_no_slot_holds_it():
    slots = Slots(count=2, devices=GPUS)
    with slots.hold(RunningAttempt("one", 1, GPUS[0].id, now())):
        assert FreeSlot(devices=GPUS[1:], has_gpus=True) in slots.free_slots
        with slots.hold(RunningAttempt("two", 1, "", now())):
            assert not any(free_slot.is_slot for free_slot in slots.free_slots)
    assert FreeSlot(devices=GPUS, has_gpus=True, num_slots=2) in slots.free_slots


def test_a_coordinator_takes_no_slot_but_one_of_a_few_wait_slots():
    slots = Slots(count=1, devices=GPUS)
    slot, wait_slot = FreeSlot(devices=GPUS, has_gpus=True), FreeSlot(False, GPUS, has_gpus=True)
    with ExitStack() as stack:
        for number in range(NUM_WAIT_SLOTS):
            assert slots.free_slots == (slot, wait_slot), "the GPU of a waiting operation is free"
            held = RunningAttempt(f"server {number}", 1, GPUS[0].id, now(), takes_slot=False)
            stack.enter_context(slots.hold(held))
        assert (slots.free_slots, slots.num_taken) == ((slot,), 0)
        with slots.hold(RunningAttempt("one", 1, GPUS[0].id, now())):
            assert (slots.free_slots, slots.num_taken) == ((), 1)
    slots.close(gone_in_seconds=1)
    assert slots.free_slots == ()


@pytest.mark.database
@pytest.mark.django_db(transaction=True)
def test_operations_that_start_at_once_get_a_gpu_each_and_the_cpu_ones_none(runtime, monkeypatch):
    for wish in ({"device": "cuda"}, {"device": "cpu"}, {"device": "cuda"}, {}):
        rows.submitted(**wish)
    everyone_started, held = threading.Barrier(4, timeout=10), []

    def run(forkserver, operation, mine):
        held.append((operation.config["device"], mine.device))
        everyone_started.wait()

    def look():
        try:
            work._work_once(runtime)
        finally:
            connection.close()

    monkeypatch.setattr(work, "_run", run)
    Operation.objects.filter(device="auto").update(device="cpu")  # there are two GPUs
    threads = [threading.Thread(target=look) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]

    assert sorted(device for _, device in held) == ["", "", "GPU-1", "GPU-2"]
    assert not everyone_started.broken
    assert {each.device for each in Attempt.objects.all()} == {"", "GPU-1", "GPU-2"}
    assert runtime.slots.free_slots[0].devices == GPUS


@pytest.mark.django_db
def test_a_worker_with_nothing_to_do_for_it_does_not_begin_to_look(runtime):
    rows.submitted(queue="a100")
    assert not runtime.can_take_something()
    runtime.labels = ["a100"]
    assert runtime.can_take_something()
    runtime.slots.is_draining = True
    assert not runtime.can_take_something()
