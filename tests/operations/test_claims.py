import threading

import pytest
from django.db import connection

from apps.operations import claims, services
from apps.operations.lifecycle import Reason, State
from apps.operations.models import Attempt, Operation
from tests.operations import rows

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]


def test_a_claim_makes_a_new_attempt_with_a_lease():
    operation = rows.claimed()
    assert (operation.state, operation.attempt, operation.worker_id) == ("RUNNING", 1, "worker-1")
    assert operation.lease_expires_at is not None
    assert Attempt.objects.get(operation=operation).number == 1


def test_nothing_to_claim_is_a_normal_answer():
    assert rows.claim() is None


def test_many_workers_never_claim_the_same_operation_twice():
    for _ in range(12):
        rows.submitted()
    taken: list[str] = []

    def work(worker_id):
        while operation := rows.claim(worker_id):
            taken.append(operation.pk)
        connection.close()

    workers = [threading.Thread(target=work, args=[f"worker-{n}"]) for n in range(6)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]

    assert sorted(taken) == sorted(Operation.objects.values_list("pk", flat=True))
    assert Attempt.objects.count() == 12


def test_the_highest_priority_goes_first_then_the_longest_waiting():
    first, second = rows.submitted(), rows.submitted()
    urgent = services.submit(kind="training", config=rows.CONFIG, owner=None, priority=5)
    assert [rows.claim().pk for _ in range(3)] == [urgent.pk, first.pk, second.pk]


def test_an_operation_that_needs_a_gpu_waits_for_a_worker_that_has_one():
    operation = rows.submitted(device="cuda")
    assert rows.claim() is None
    found = claims.claim(worker_id="w", host="h", kinds=["training"], queues=[""], has_gpu=True)
    assert found.pk == operation.pk


def test_a_worker_of_other_kinds_or_queues_takes_nothing():
    rows.submitted()
    none = {"worker_id": "w", "host": "h", "has_gpu": False}
    assert claims.claim(**none, kinds=["rl"], queues=[""]) is None
    assert claims.claim(**none, kinds=["training"], queues=["big"]) is None


def test_a_restarted_operation_is_left_alone_until_its_pause_is_over():
    operation = rows.claimed()
    claims.restart_or_fail(
        operation, Reason.PROCESS_KILLED, actor="w", note="", outcome=Attempt.Outcome.LOST
    )
    assert services.get(operation.pk).state == State.RESUMING
    assert rows.claim() is None


def test_renewing_tells_which_attempts_are_still_owned():
    operation = rows.claimed()
    key, ghost = (operation.pk, 1), (operation.pk, 0)
    assert claims.renew("worker-1", [key, ghost]) == {key}
    assert claims.renew("worker-2", [key]) == set()


def test_a_ghost_cannot_end_what_another_attempt_owns():
    ghost = rows.claimed()
    operation = services.get(ghost.pk)
    operation.row.move(State.RESUMING, actor="sweep")
    current = rows.claim("worker-2")

    with pytest.raises(claims.Fenced):
        claims.finish(ghost, State.COMPLETED, outcome=Attempt.Outcome.COMPLETED, result={})

    operation.refresh_from_db()
    assert (operation.state, operation.attempt, operation.result) == (
        "RUNNING",
        current.attempt,
        None,
    )
    assert not Attempt.objects.filter(outcome=Attempt.Outcome.COMPLETED).exists()


def test_a_ghost_cannot_put_it_back_into_the_queue():
    ghost = rows.claimed()
    services.get(ghost.pk).row.move(State.RESUMING, actor="sweep")
    rows.claim("worker-2")
    assert not claims.restart_or_fail(
        ghost, Reason.SHUTDOWN, actor="w", note="", outcome=Attempt.Outcome.PREEMPTED
    )


def test_what_was_asked_to_stop_is_not_started_again(person):
    operation = rows.claimed(person)
    services.cancel(operation_id=operation.pk, actor=person)
    claims.restart_or_fail(
        operation, Reason.WORKER_LOST, actor="sweep", note="lost", outcome=Attempt.Outcome.LOST
    )
    assert services.get(operation.pk).state == State.CANCELLED
