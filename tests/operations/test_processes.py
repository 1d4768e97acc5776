"""Operations of several processes: slots and GPUs of one worker at once, and no starving."""

import random
from dataclasses import replace

import pytest

from apps.operations.attempts import outcomes
from apps.operations.lifecycle import Reason, State
from apps.operations.models import Attempt, Operation
from apps.operations.placement import GB, Device, FreeSlot, ServingWorker
from apps.operations.requests import services
from apps.operations.scheduling import queue_status
from apps.operations.scheduling.slots import RunningAttempt, Slots
from tests.operations import rows
from tests.thinning import some_of
from trainops.process.protocol import Failed, now

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database, pytest.mark.postgres]
GPUS = (Device("GPU-1", 24 * GB), Device("GPU-2", 24 * GB), Device("GPU-3", 80 * GB))


def submitted(processes=1, **more):
    operation = rows.submitted(**more)
    operation.row.update(processes=processes)
    return operation


def offer(num_free, of):
    return replace(
        rows.OFFER,
        free_slots=[FreeSlot(num_slots=num_free)] if num_free else [],
        all_slots=FreeSlot(num_slots=of),
    )


def claim(num_free, of, worker_id="w"):
    operation = rows.claim(worker_id, offer(num_free, of))
    return operation and operation.pk


@pytest.fixture
def known(monkeypatch):
    """Set the workers that the registry knows, by their free and all slots."""

    def set_workers(**workers):
        found = [
            ServingWorker(
                name, kinds=["training"], slots=slots, num_running=slots - free, max_processes=slots
            )
            for name, (free, slots) in workers.items()
        ]
        monkeypatch.setattr(queue_status, "workers", lambda: found)

    return set_workers


def test_the_row_has_the_number_of_processes_of_its_config():
    config = {"recipe": "digits_loop", "processes": 3}
    operation = services.submit(kind="loop", config=config, owner=None)
    assert services.get(operation.pk).need.processes == 3
    assert rows.submitted().need.processes == 1


def test_each_process_holds_a_slot_and_a_gpu():
    slots = Slots(count=4, devices=GPUS)
    with slots.hold(RunningAttempt("one", 1, "GPU-1,GPU-3", now(), processes=2)):
        free, _ = slots.free_slots
        assert (free.num_slots, free.devices, slots.num_taken) == (2, GPUS[1:2], 2)
        with slots.hold(RunningAttempt("two", 1, "", now(), processes=2)):
            assert not any(each.is_slot for each in slots.free_slots)
    assert slots.free_slots[0] == slots.all_slots


def test_a_claim_takes_a_gpu_for_each_process():
    operation = submitted(2, device="cuda")
    free = FreeSlot(devices=GPUS, has_gpus=True, num_slots=3)
    assert rows.claim(offer=replace(rows.OFFER, free_slots=[replace(free, num_slots=1)])) is None
    assert rows.claim(offer=replace(rows.OFFER, free_slots=[free])).pk == operation.pk
    assert Attempt.objects.get().device == "GPU-1,GPU-2"


def test_a_worker_makes_room_for_an_operation_of_several_processes():
    operation, later = submitted(2), submitted()
    assert claim(1, of=2) is None  # the other slot is busy
    urgent = submitted(priority=1)
    assert claim(1, of=2) == urgent.pk
    assert claim(2, of=2) == operation.pk
    assert claim(1, of=2) == later.pk


def test_a_worker_that_is_too_small_makes_no_room():
    submitted(4)
    small = submitted()
    assert claim(2, of=3) == small.pk


def test_what_needs_no_slot_is_not_held_up():
    submitted(2)
    coordinator = submitted()
    coordinator.row.update(takes_slot=False)
    given = offer(1, of=2)
    given = replace(given, free_slots=[*given.free_slots, FreeSlot(is_slot=False)])
    assert rows.claim(offer=given).pk == coordinator.pk


def test_one_worker_makes_room_and_the_others_go_on(known):
    operation, small = submitted(3), submitted()
    known(far=(1, 4), near=(2, 3))
    assert claim(2, of=3, worker_id="near") is None
    assert claim(1, of=4, worker_id="far") == small.pk
    known(far=(0, 4), near=(3, 3))
    assert claim(3, of=3, worker_id="near") == operation.pk


@pytest.mark.slow
@pytest.mark.parametrize("seed", some_of(range(6), every=3))
def test_no_operation_of_several_processes_starves(seed, known):
    """Small operations never cease to come; every slot is free again within ten rounds."""
    rng = random.Random(seed)  # noqa: S311
    sizes = {"a": 2, "b": 4, "c": 4}
    running = {name: [] for name in sizes}  # (round of its end, processes)
    gangs = {submitted(rng.choice([2, 3, 4])).pk for _ in range(3)}
    for number in range(60):
        submitted()
        for name in rng.sample(sorted(sizes), 3):
            running[name] = [each for each in running[name] if each[0] > number]
            taken = {each: sum(size for _, size in running[each]) for each in sizes}
            known(**{each: (sizes[each] - taken[each], sizes[each]) for each in sizes})
            while pk := claim(sizes[name] - taken[name], sizes[name], name):
                processes = Operation.objects.get(pk=pk).processes
                running[name].append((number + rng.randint(1, 10), processes))
                taken[name] += processes
                assert taken[name] <= sizes[name]
                gangs.discard(pk)
                submitted()
    assert not gangs


def test_a_rank_that_the_kernel_killed_for_memory_is_out_of_memory():
    message = Failed("PROCESS_KILLED", "rank 1 ended by SIGKILL", "")
    for memory_ran_out, reason in ((False, Reason.PROCESS_KILLED), (True, Reason.OUT_OF_MEMORY)):
        outcome = outcomes.of_message(
            message, is_asked=False, is_out_of_time=False, memory_ran_out=memory_ran_out
        )
        assert outcome.reason is reason


def test_a_running_operation_takes_as_many_slots_in_the_queue_status():
    operation = submitted(3)
    assert claim(4, of=4) == operation.pk
    assert services.get(operation.pk).state == State.RUNNING
    with_worker = [ServingWorker("w", slots=4, max_processes=4)]
    queue_status.register(lambda: with_worker)
    try:
        assert [each.num_running for each in queue_status.workers() if each.worker_id == "w"] == [3]
    finally:
        queue_status._registered.pop()
