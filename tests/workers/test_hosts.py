"""A host that breaks what runs on it is drained; the last one that could take work never is."""

import threading
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from apps.operations.lifecycle import Reason
from apps.operations.models import Attempt, Event, Operation
from apps.operations.placement import GB, Offer
from apps.operations.scheduling import claims, queue_status
from apps.workers import hosts, registry
from apps.workers.models import Worker
from tests.operations.rows import submitted

pytestmark = [pytest.mark.django_db, pytest.mark.database]


def runtime(*names, **more):
    """Register one worker on each host."""
    for name in names:
        registry.register(worker_id=f"w-{name}", host=name, kinds=["training"], **more)


def crash(host, operation=None, *, reason=Reason.SEGMENTATION_FAULT, number=1, seconds_ago=-1):
    """One attempt that has ended on a host, by its worker there."""
    operation = operation or submitted()
    is_completed = reason is Reason.NONE
    Attempt.objects.create(
        operation=operation,
        number=number,
        worker_id=f"w-{host}",
        host=host,
        reason=reason,
        outcome=Attempt.Outcome.COMPLETED if is_completed else Attempt.Outcome.FAILED,
        ended_at=timezone.now() - timedelta(seconds=seconds_ago),
    )
    return operation


def crashes(host, num=3, **more):
    return [crash(host, **more) for _ in range(num)]


def drained():
    return sorted(Worker.objects.filter(is_draining=True).values_list("worker_id", flat=True))


def test_it_is_drained_and_says_why():
    runtime("broken", "sound")
    operations = crashes("broken", 2) + crashes("broken", 1, reason=Reason.OUT_OF_MEMORY)
    assert hosts.drain_faulty(actor="w-sound") == ["broken"]
    worker = registry.get("w-broken")
    assert worker.status == "DRAINING"
    assert worker.drain_reason.startswith("3 operations crashed on broken within 600 s (op_")
    assert "OUT_OF_MEMORY" in worker.drain_reason
    assert registry.get("w-sound").status == "AVAILABLE"
    for operation in operations:
        event = operation.events.first()
        assert (event.what, event.actor) == ("HOST_DRAINED", "w-sound")
        assert event.note == worker.drain_reason
    assert hosts.drain_faulty(actor="w-sound") == []
    assert Event.objects.filter(what="HOST_DRAINED").count() == 3


def test_a_crash_of_an_operation_of_several_nodes_is_held_against_no_host():
    runtime("leading", "sound")
    crashes("leading")
    Attempt.objects.update(num_nodes=2)
    assert hosts.drain_faulty(actor="w") == [] and drained() == []


def test_every_worker_of_the_host_is_drained():
    runtime("broken", "sound")
    registry.register(worker_id="second", host="broken", kinds=["training"])
    crashes("broken")
    hosts.drain_faulty(actor="w")
    assert drained() == ["second", "w-broken"]


@pytest.mark.parametrize("reason", [Reason.JOB_ERROR, Reason.NON_FINITE_LOSS, Reason.SHUTDOWN])
def test_errors_of_the_jobs_own_code_say_nothing_of_the_host(reason):
    runtime("broken", "sound")
    crashes("broken", reason=reason)
    assert hosts.drain_faulty(actor="w") == []


def test_too_few_or_too_long_ago_is_chance():
    runtime("broken", "sound")
    crashes("broken", 2)
    crashes("broken", 3, seconds_ago=601)
    assert hosts.drain_faulty(actor="w") == []


def test_one_operation_that_crashes_again_and_again_is_one():
    runtime("broken", "sound")
    operation = submitted()
    for number in range(1, 6):
        crash("broken", operation, number=number)
    assert hosts.drain_faulty(actor="w") == []


def test_operations_that_crash_elsewhere_too_are_their_own_fault():
    runtime("one", "two", "three")
    for operation in crashes("one"):
        crash("two", operation, number=2)
    assert hosts.drain_faulty(actor="w") == []


def test_a_host_on_which_more_is_completed_than_crashes_is_sound():
    runtime("busy", "sound")
    crashes("busy")
    crashes("busy", 3, reason=Reason.NONE)
    assert hosts.drain_faulty(actor="w") == []


def test_the_last_host_is_never_drained():
    runtime("only")
    crashes("only")
    assert hosts.drain_faulty(actor="w") == []


@pytest.mark.parametrize(
    "other",
    [
        {"is_draining": True},
        {"heartbeat_at": timezone.now() - timedelta(days=1)},
        {"kinds": ["rl"]},
        {"capabilities": {"gpu": False}},
    ],
)
def test_a_host_that_cannot_do_its_work_does_not_count(other):
    runtime("broken", "other", capabilities={"gpu": True})
    crashes("broken")
    Worker.objects.filter(pk="w-other").update(**other)
    assert hosts.drain_faulty(actor="w") == []
    runtime("third", capabilities={"gpu": True})
    assert hosts.drain_faulty(actor="w") == ["broken"]


def test_where_every_host_looks_broken_the_cause_is_common():
    runtime("one", "two")
    crashes("one")
    crashes("two")
    assert hosts.drain_faulty(actor="w") == []


def test_a_worker_that_was_let_work_again_or_started_anew_is_trusted():
    runtime("broken", "sound")
    crashes("broken", seconds_ago=5)
    Worker.objects.update(trusted_since=timezone.now() - timedelta(seconds=60))
    hosts.drain_faulty(actor="w")
    assert registry.undrain(worker_id="w-broken").drain_reason == ""
    assert hosts.drain_faulty(actor="w") == []
    registry.deregister(worker_id="w-broken")
    registry.register(worker_id="new", host="broken", kinds=["training"])
    assert hosts.drain_faulty(actor="w") == []


@pytest.mark.django_db(transaction=True)
def test_many_looks_at_once_drain_it_once():
    runtime("broken", "sound")
    crashes("broken")
    gate, found = threading.Barrier(4), []

    def look():
        gate.wait()
        found.extend(hosts.drain_faulty(actor="w"))
        connection.close()

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (found, drained()) == (["broken"], ["w-broken"])
    assert Event.objects.filter(what="HOST_DRAINED").count() == 3


@pytest.mark.django_db(transaction=True)
def test_a_claim_of_an_operation_that_crashed_and_a_drain_wait_for_no_lock_of_each_other(
    monkeypatch,
):
    runtime("broken", "sound")
    crashes("broken")
    Operation.objects.update(state="RESUMING", attempt=1)
    has_operation, has_workers, found = threading.Event(), threading.Event(), []
    lock, spare = queue_status.lock_workers, hosts._can_be_spared

    def lock_workers(worker_ids):  # the claim holds the row of its operation now
        has_operation.set()
        has_workers.wait(2)  # on SQLite the drain cannot begin before the claim ends
        lock(worker_ids)

    def can_be_spared(*given):
        has_workers.set()
        return spare(*given)

    def drain():
        has_operation.wait(30)
        found.extend(hosts.drain_faulty(actor="w"))
        connection.close()

    monkeypatch.setattr(queue_status, "lock_workers", lock_workers)
    monkeypatch.setattr(hosts, "_can_be_spared", can_be_spared)
    thread = threading.Thread(target=drain)
    thread.start()
    offer = Offer(kinds=["training"], memory_bytes=8 * GB, disk_bytes=100 * GB, is_node=True)
    claimed = claims.claim(worker_id="w-sound", host="sound", offer=offer)
    thread.join()
    assert (claimed.state, found, drained()) == ("RUNNING", ["broken"], ["w-broken"])


@pytest.mark.parametrize("asks", [False, True])
def test_a_worker_over_http_takes_no_host_s_place(asks):
    runtime("broken")
    registry.register(worker_id="gpu-box", worker_type="custom", host="spare", kinds=["training"])
    crashes("broken")
    if asks:
        registry.asks_for_work(worker_id="gpu-box", kinds=["training"], labels=[])
    assert hosts.drain_faulty(actor="w") == (["broken"] if asks else [])
