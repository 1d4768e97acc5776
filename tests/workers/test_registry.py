"""What workers tell the worker: idempotent, and never believed further than the fence."""

import threading
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from apps.operations.lifecycle import State
from apps.operations.models import Attempt, Event, Operation
from apps.operations.requests import services
from apps.operations.scheduling import claims
from apps.workers import maintenance, registry, reports
from apps.workers.models import Worker
from apps.workers.registry import HeartbeatResponse, WorkerNotFound
from apps.workers.reports import AttemptOrder
from tests.operations.rows import claim, claimed, forget_lease
from tests.workers.conftest import give_up

pytestmark = [pytest.mark.django_db, pytest.mark.database]


def aged(worker_id, seconds):
    moment = timezone.now() - timedelta(seconds=seconds)
    Worker.objects.filter(pk=worker_id).update(heartbeat_at=moment)
    return registry.get(worker_id).status


def test_registering_is_idempotent():
    first = registry.register(worker_id="w", host="a", kinds=["training"], slots=2)
    again = registry.register(worker_id="w", host="b", kinds=["training"], slots=3)
    assert Worker.objects.count() == 1
    assert (again.host, again.slots, again.registered_at) == ("b", 3, first.registered_at)


@pytest.mark.django_db(transaction=True)
def test_many_at_once_leave_one_row():
    def register():
        registry.register(worker_id="w")
        connection.close()

    threads = [threading.Thread(target=register) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Worker.objects.count() == 1


def test_the_status_follows_the_heartbeat():
    registry.register(worker_id="w", slots=2)
    assert registry.get("w").status == "AVAILABLE"
    assert aged("w", 31) == "TEMPORARILY_UNAVAILABLE"
    assert aged("w", 601) == "GONE"
    assert registry.heartbeat(worker_id="w", num_running=1) == HeartbeatResponse(is_draining=False)
    assert registry.get("w").status == "BUSY"


def test_an_unknown_worker_is_asked_to_register():
    assert registry.heartbeat(worker_id="w") is None
    assert registry.deregister(worker_id="w") is False
    with pytest.raises(WorkerNotFound):
        registry.drain(worker_id="w")


def test_draining_outlasts_a_new_registration():
    registry.register(worker_id="w")
    registry.drain(worker_id="w")
    registry.register(worker_id="w")
    assert registry.heartbeat(worker_id="w") == HeartbeatResponse(is_draining=True)
    assert registry.get("w").status == "DRAINING"
    assert registry.undrain(worker_id="w").status == "AVAILABLE"


def test_deregistering_forgets_it():
    registry.register(worker_id="w")
    assert registry.deregister(worker_id="w") is True
    assert not Worker.objects.exists()


def test_what_it_owns_continues_with_a_new_lease():
    operation = claimed(worker_id="w")
    forget_lease(operation)
    assert reports.sync(worker_id="w", running=[(operation.pk, 1)]) == [
        AttemptOrder(operation.pk, 1, "proceed")
    ]
    assert not Operation.objects.silent().exists()


@pytest.mark.parametrize("policy", ["never", "on_worker_loss"])
def test_what_was_given_up_too_early_continues(policy):
    operation = give_up(claimed(worker_id="w"), policy)
    assert operation.state == (State.FAILED if policy == "never" else State.RESUMING)
    (order,) = reports.sync(worker_id="w", running=[(operation.pk, 1)])
    assert order.directive == "proceed"
    operation = services.get(operation.pk)
    assert (operation.state, operation.worker_id, operation.attempt) == (State.RUNNING, "w", 1)
    assert (operation.error, operation.finished_at, operation.not_before) == (None, None, None)
    assert not Operation.objects.silent().exists()
    attempt = Attempt.objects.get()
    assert (attempt.outcome, attempt.ended_at, attempt.reason) == ("running", None, "")
    event = Event.objects.first()
    assert (event.what, event.actor, event.attempt) == ("RUNNING", "w", 1)
    claims.finish(operation, State.COMPLETED, outcome=Attempt.Outcome.COMPLETED)  # it owns it


def test_a_superseded_attempt_is_asked_to_stop():
    operation = give_up(claimed(worker_id="w"), "on_worker_loss")
    operation.row.update(not_before=None)
    assert claim("other") is not None
    (order,) = reports.sync(worker_id="w", running=[(operation.pk, 1)])
    assert (order.directive, order.reason) == ("stop", "SUPERSEDED")
    assert services.get(operation.pk).worker_id == "other"


def test_what_a_person_ended_is_not_revived(person):
    operation = give_up(claimed(worker_id="w"), "on_worker_loss")
    services.cancel(operation_id=operation.pk, actor=person)
    (order,) = reports.sync(worker_id="w", running=[(operation.pk, 1)])
    assert (order.directive, order.reason) == ("stop", "CANCELLED")
    assert services.get(operation.pk).state == State.CANCELLED


def test_another_worker_cannot_claim_to_run_it():
    operation = give_up(claimed(worker_id="w"))
    (order,) = reports.sync(worker_id="thief", running=[(operation.pk, 1)])
    assert (order.directive, order.reason) == ("stop", "FAILED")
    running = claimed(worker_id="w")
    (order,) = reports.sync(worker_id="thief", running=[(running.pk, 1)])
    assert (order.directive, order.reason) == ("stop", "SUPERSEDED")


def test_an_unknown_operation_is_stopped():
    (order,) = reports.sync(worker_id="w", running=[("op_training_x", 1)])
    assert (order.directive, order.reason) == ("stop", "UNKNOWN_OPERATION")


def test_wishes_of_people_come_with_it(person):
    operation = claimed(worker_id="w")
    services.cancel(operation_id=operation.pk, actor=person)
    (order,) = reports.sync(worker_id="w", running=[(operation.pk, 1)])
    assert order.directive == "cancel"


def test_a_worker_that_is_lost_runs_nothing_once_its_lease_has_ended():
    operation = claimed(worker_id="w")
    for name in ("w", "alive"):
        registry.register(worker_id=name)
        registry.heartbeat(worker_id=name, num_running=1, current_operation_id=operation.pk)
    aged("w", 90)
    maintenance.sweep(actor="beat")
    assert registry.get("w").num_running == 1  # it holds the lease
    give_up(operation, "on_worker_loss")
    maintenance.sweep(actor="beat")
    lost, alive = registry.get("w"), registry.get("alive")
    assert (lost.num_running, lost.current_operation_id) == (0, "")
    assert (alive.num_running, alive.current_operation_id) == (1, operation.pk)
    registry.heartbeat(worker_id="w", num_running=1)  # it was frozen, and is back
    maintenance.sweep(actor="beat")
    assert registry.get("w").num_running == 1
