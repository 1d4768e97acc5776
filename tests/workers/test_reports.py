"""Reports that race with claims, sweeps and each other: one wins, and all get the truth."""

import threading

import pytest
from django.db import connection

from apps.operations.lifecycle import Reason, State
from apps.operations.models import Attempt, Event
from apps.operations.requests import services
from apps.operations.scheduling import claims, sweeps
from apps.workers import reports
from apps.workers.reports import Ended
from tests.operations import rows
from tests.operations.rows import claim, claimed, forget_lease
from tests.workers.conftest import give_up

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]
ROUNDS = 8


def at_once(*calls):
    """Call everything at the same moment, each with a connection of its own; return the answers."""
    gate, answers = threading.Barrier(len(calls)), [None] * len(calls)

    def run(index, call):
        gate.wait()
        try:
            answers[index] = call()
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=each) for each in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return answers


def waiting_for_anyone(worker_id="w"):
    operation = give_up(claimed(worker_id=worker_id), "on_worker_loss")
    operation.row.update(not_before=None)
    return operation


@pytest.mark.slow
def test_either_its_worker_gets_it_back_or_another_claims_it(db):
    for _ in range(ROUNDS):
        operation = waiting_for_anyone()
        key = (operation.pk, 1)
        (order,), taken = at_once(
            lambda key=key: reports.sync(worker_id="w", running=[key]), lambda: claim("other")
        )
        row = services.get(operation.pk)
        assert row.state == State.RUNNING
        if taken is None:
            assert (order.directive, row.worker_id, row.attempt) == ("proceed", "w", 1)
        else:
            assert (order.directive, order.reason) == ("stop", "SUPERSEDED")
            assert (row.worker_id, row.attempt) == ("other", 2)
        outcomes = operation.attempts.values_list("outcome", flat=True)
        assert list(outcomes).count("running") == 1
        claims.finish(row, State.COMPLETED, outcome=Attempt.Outcome.COMPLETED)


@pytest.mark.slow
def test_an_end_is_taken_down_once_though_others_claim_and_it_is_reported_twice(db):
    for _ in range(ROUNDS):
        operation = waiting_for_anyone()
        report = [Ended(operation.pk, 1, "completed", {"worth": 1})]
        first, second, taken = at_once(
            lambda report=report: reports.finalize(worker_id="w", ended=report),
            lambda report=report: reports.finalize(worker_id="w", ended=report),
            lambda: claim("other"),
        )
        row = services.get(operation.pk)
        if taken is None:
            assert first[0].accepted and second[0].accepted
            assert (row.state, row.result) == (State.COMPLETED, {"worth": 1})
        else:
            assert [each[0].accepted for each in (first, second)] == [False, False]
            assert (row.state, row.attempt, row.result) == (State.RUNNING, 2, None)
            claims.finish(row, State.COMPLETED, outcome=Attempt.Outcome.COMPLETED)
        assert Event.objects.filter(operation=operation, what="COMPLETED").count() == 1


@pytest.mark.slow
def test_a_sweep_that_comes_at_the_same_moment_takes_nothing_from_what_is_reported(db):
    for _ in range(ROUNDS):
        operation = claimed(worker_id="w")
        forget_lease(operation)
        (order,), _ = at_once(
            lambda key=(operation.pk, 1): reports.sync(worker_id="w", running=[key]),
            lambda: sweeps.recover_lost(actor="beat"),
        )
        row = services.get(operation.pk)
        assert (order.directive, row.state, row.worker_id) == ("proceed", State.RUNNING, "w")
        claims.finish(row, State.COMPLETED, outcome=Attempt.Outcome.COMPLETED)


def crashed(operation, reason=Reason.SEGMENTATION_FAULT):
    error = {"code": reason, "message": f"died of {reason}", "traceback": "here"}
    ended = Ended(operation.pk, operation.attempt, "failed", error=error)
    (verdict,) = reports.finalize(worker_id=operation.worker_id, ended=[ended])
    assert verdict.accepted
    return services.get(operation.pk)


def again(operation, host):
    operation.row.update(not_before=None)
    taken = claims.claim(worker_id=f"w-{host}", host=host, offer=rows.OFFER)
    assert taken is not None
    return taken


def test_what_crashes_on_two_hosts_is_its_own_fault_and_says_where_and_how(db):
    operation = crashed(claimed())  # on "host"
    operation = crashed(again(operation, "host"), Reason.PROCESS_KILLED)
    assert operation.state == State.RESUMING  # it may still be the host's
    operation = crashed(again(operation, "second"))
    assert (operation.state, operation.reason) == (State.FAILED, Reason.SEGMENTATION_FAULT)
    note = operation.events.first().note
    assert note == (
        "it crashed on 2 hosts, so the operation is at fault: "
        "attempt 1 on host: SEGMENTATION_FAULT (died of SEGMENTATION_FAULT); "
        "attempt 2 on host: PROCESS_KILLED (died of PROCESS_KILLED); "
        "attempt 3 on second: SEGMENTATION_FAULT (died of SEGMENTATION_FAULT)"
    )
    assert operation.error["message"] == note
    assert (operation.error["code"], operation.error["traceback"]) == ("SEGMENTATION_FAULT", "here")


def test_a_crash_before_the_last_progress_does_not_count(db):
    operation = again(crashed(claimed()), "second")
    operation.row.update(restarts_used=0)  # it saved a checkpoint beyond the last one
    operation.refresh_from_db()
    assert crashed(operation).state == State.RESUMING


def test_what_the_platform_did_on_two_hosts_is_not_the_operations_fault(db):
    operation = crashed(claimed(), Reason.PLATFORM_ERROR)
    operation = crashed(again(operation, "second"), Reason.SHUTDOWN)
    assert crashed(again(operation, "third"), Reason.STALLED).state == State.RESUMING
