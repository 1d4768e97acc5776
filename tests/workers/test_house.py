"""The duties of a worker process outlive whatever goes wrong in one of their rounds."""

import os
import threading

import pytest
from django.db import InterfaceError, OperationalError

from apps.checkpoints import storage
from apps.operations.attempts import work
from apps.operations.lifecycle import State
from apps.operations.requests import services
from apps.operations.scheduling.holding import Held, Holding
from apps.workers import duties, registry
from apps.workers.duties import Duties
from apps.workers.house import Keeper
from apps.workers.models import Worker
from tests.operations.rows import claimed
from tests.workers.conftest import give_up
from trainops.process.protocol import now


@pytest.fixture
def keeper(db):
    """A worker process's life, without its threads."""
    house = work.House()
    house.worker_id = "w"
    house.holding = Holding(slots=1)
    return Keeper(house)


@pytest.mark.parametrize("error", [OperationalError, InterfaceError, RuntimeError, KeyError])
def test_a_duty_goes_on_after_a_round_that_failed(error, transactional_db):
    rounds, went_on = [], threading.Event()
    duties = Duties()

    def duty():
        rounds.append(1)
        if len(rounds) < 3:
            raise error("not this time\nfor more than one reason")
        went_on.set()

    duties.begin(0.01, duty, "test")
    try:
        assert went_on.wait(10)
    finally:
        duties.are_over.set()
    assert f", test: {error.__name__}: " in duties.trouble
    assert "not this time" in duties.trouble


def test_what_failed_is_tried_again_after_growing_pauses_that_differ():
    pauses = {n: [duties.retry_pause(n) for _ in range(200)] for n in range(1, 40)}
    assert all(1 <= pause <= 30 for each in pauses.values() for pause in each)
    means = [sum(pauses[n]) / 200 for n in range(1, 7)]
    assert means == sorted(means)
    assert means[0] < 1.2 and means[5] > 25
    assert all(len(set(each)) > 50 for each in pauses.values())


def test_a_heartbeat_that_finds_the_row_gone_registers_at_once(keeper):
    keeper._say_alive()
    worker = Worker.objects.get()
    assert (worker.worker_id, worker.pid, worker.is_draining) == ("w", os.getpid(), False)
    keeper.house.holding.is_draining = True  # an admin said so; then the row was lost
    worker.delete()
    keeper._say_alive()
    assert Worker.objects.get().is_draining is True


def test_a_drain_that_somebody_asked_for_reaches_the_slots(keeper):
    keeper._be_registered()
    registry.drain(worker_id="w", reason="to be repaired")
    keeper._keep_leases()
    assert keeper.house.offer().rooms == ()
    registry.undrain(worker_id="w")
    keeper._keep_leases()
    assert [room.is_slot for room in keeper.house.offer().rooms] == [True, False]


def test_what_went_wrong_last_is_told_once_the_registry_is_there_again(keeper):
    keeper._be_registered()
    keeper.duties.trouble = "the database was away"
    keeper._say_alive()
    assert (registry.get("w").last_error, keeper.duties.trouble) == ("the database was away", None)
    keeper._say_alive()
    assert registry.get("w").last_error == "the database was away"
    Worker.objects.all().delete()
    keeper.duties.trouble = "its row was gone"
    keeper._be_registered()
    assert (registry.get("w").last_error, keeper.duties.trouble) == ("its row was gone", None)


@pytest.mark.parametrize(("seconds_ago", "is_lost"), [(1, False), (41, True)])
def test_what_a_restored_database_says_is_lost_goes_on_if_it_was_never_out_of_sight(
    keeper, seconds_ago, is_lost
):
    operation = give_up(claimed(worker_id="w"), "on_worker_loss")
    with keeper.house.holding.hold(Held(operation.pk, 1, "", now() - seconds_ago)) as held:
        keeper._keep_leases()
    assert held.is_lost == is_lost
    state = State.RESUMING if is_lost else State.RUNNING
    assert services.get(operation.pk).state == state


def test_a_storage_that_does_not_answer_keeps_nobodys_wish_from_being_heard(keeper, monkeypatch):
    keeper._look_at_storage()
    monkeypatch.setattr(storage, "free_bytes", lambda: pytest.fail("it would wait for ever"))
    operation = claimed(worker_id="w")
    operation.row.update(stop_requested="KILL")
    with keeper.house.holding.hold(Held(operation.pk, 1, "", now())) as held:
        keeper._hear_wishes()
    assert held.stop == "KILL"


def test_who_runs_something_in_a_seat_alone_is_busy(keeper):
    operation = claimed(worker_id="w")
    with keeper.house.holding.hold(Held(operation.pk, 1, "", now(), takes_slot=False)):
        keeper._be_registered()
    worker = registry.get("w")
    assert (worker.status, worker.num_running) == ("BUSY", 0)
