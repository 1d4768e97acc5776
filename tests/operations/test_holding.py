"""Slots and GPUs of one worker: no GPU is promised twice, and none is held without use."""

import threading
from contextlib import ExitStack

import pytest
from django.db import connection

from apps.operations.attempts import work
from apps.operations.models import Attempt, Operation
from apps.operations.placement import GB, Device, Room
from apps.operations.scheduling.holding import Held, Holding
from tests.operations import rows
from trainops.process.protocol import now
from trainops.serving import NUM_SEATS

GPUS = (Device("GPU-1", 24 * GB), Device("GPU-2", 80 * GB))


class ReadyNursery:
    """Children are not what these tests are about."""

    is_ready = True


@pytest.fixture
def house(monkeypatch):
    house = work.House()
    house.worker_id, house.nursery = "w", ReadyNursery()
    house.holding = Holding(slots=4, devices=GPUS)
    return house


def test_a_gpu_is_free_when_no_slot_holds_it():
    holding = Holding(slots=2, devices=GPUS)
    with holding.hold(Held("one", 1, GPUS[0].id, now())):
        assert Room(devices=GPUS[1:], has_gpus=True) in holding.rooms
        with holding.hold(Held("two", 1, "", now())):
            assert not any(room.is_slot for room in holding.rooms)
    assert Room(devices=GPUS, has_gpus=True) in holding.rooms


def test_who_waits_for_others_takes_no_slot_but_one_of_a_few_seats():
    holding = Holding(slots=1, devices=GPUS)
    slot, seat = Room(devices=GPUS, has_gpus=True), Room(False, GPUS, has_gpus=True)
    with ExitStack() as stack:
        for number in range(NUM_SEATS):
            assert holding.rooms == (slot, seat), "nobody holds the GPU of who waits"
            held = Held(f"server {number}", 1, GPUS[0].id, now(), takes_slot=False)
            stack.enter_context(holding.hold(held))
        assert (holding.rooms, holding.num_taken) == ((slot,), 0)
        with holding.hold(Held("one", 1, GPUS[0].id, now())):
            assert (holding.rooms, holding.num_taken) == ((), 1)
    holding.close(gone_in_seconds=1)
    assert holding.rooms == ()


@pytest.mark.database
@pytest.mark.django_db(transaction=True)
def test_operations_that_start_at_once_get_a_gpu_each_and_the_cpu_ones_none(house, monkeypatch):
    for wish in ({"device": "cuda"}, {"device": "cpu"}, {"device": "cuda"}, {}):
        rows.submitted(**wish)
    everyone_started, held = threading.Barrier(4, timeout=10), []

    def run(nursery, operation, mine):
        held.append((operation.config["device"], mine.device))
        everyone_started.wait()

    def look():
        try:
            work._work_once(house)
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
    assert house.holding.rooms[0].devices == GPUS


@pytest.mark.django_db
def test_a_worker_with_nothing_to_do_for_it_does_not_begin_to_look(house):
    rows.submitted(queue="a100")
    assert not house.can_take_something()
    house.labels = ["a100"]
    assert house.can_take_something()
    house.holding.is_draining = True
    assert not house.can_take_something()
