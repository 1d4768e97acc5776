"""Slots and GPUs of one worker: no GPU is promised twice, and none is held without use."""

import threading

import pytest
from django.db import connection

from apps.operations import work
from apps.operations.holding import Holding, Slot
from apps.operations.models import Attempt, Operation
from apps.operations.placement import GB, Device
from tests.operations import rows

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
    with holding.slot() as slot:
        slot.device = GPUS[0]
        with holding.slot() as other:
            assert isinstance(other, Slot) and other.device is None
            assert holding.free_devices == GPUS[1:]
            with holding.slot() as third:
                assert third is None
    assert (holding.num_free, holding.free_devices) == (2, GPUS)


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
    assert house.holding.free_devices == GPUS


@pytest.mark.django_db
def test_a_worker_with_nothing_to_do_for_it_does_not_begin_to_look(house):
    rows.submitted(queue="a100")
    assert not house.can_take_something()
    house.labels = ["a100"]
    assert house.can_take_something()
    house.holding.is_draining = True
    assert not house.can_take_something()
