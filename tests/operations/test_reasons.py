"""The reason PLATFORM_ERROR, and its older name HOUSE_ERROR in rows and requests."""

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from apps.dashboard.filters import Filters
from apps.operations.attempts.outcomes import Interrupted, of_message
from apps.operations.filters import OperationQuery, narrowed
from apps.operations.lifecycle import Reason, State
from apps.operations.models import Attempt, Operation
from apps.workers import reports
from tests.ledger.test_migration import migrated
from tests.operations.rows import claimed, in_state
from trainops.process.protocol import Failed

OLD, NEW = "HOUSE_ERROR", "PLATFORM_ERROR"


def test_the_older_name_is_the_same_reason():
    assert Reason(OLD) is Reason.PLATFORM_ERROR
    assert OLD not in Reason.values
    with pytest.raises(ValueError, match="SOMETHING_ELSE"):
        Reason("SOMETHING_ELSE")


def test_a_message_with_the_older_name_is_recorded_under_the_name():
    outcome = of_message(Failed(OLD, "it broke", "here"), is_asked=False, is_out_of_time=False)
    error = {"code": NEW, "message": "it broke", "traceback": "here"}
    assert outcome == Interrupted(Reason.PLATFORM_ERROR, "it broke", error)


def test_a_worker_over_http_may_send_the_older_name(db):
    operation = claimed(restart={"policy": "never"})
    error = {"code": OLD, "message": "it broke", "traceback": ""}
    ended = reports.Ended(operation.pk, operation.attempt, "failed", error=error)
    (verdict,) = reports.finalize(worker_id=operation.worker_id, ended=[ended])
    operation.refresh_from_db()
    assert verdict.accepted
    assert (operation.reason, operation.error["code"]) == (NEW, NEW)


@pytest.mark.parametrize("name", [OLD, NEW])
def test_lists_find_it_by_both_names(person, name):
    operation = in_state(State.FAILED, person)
    operation.row.update(reason=NEW)
    query = OperationQuery(data={"reason": f"STALLED,{name}"})
    assert query.is_valid()
    listed = narrowed(Operation.objects.all(), query.validated_data, person)
    assert list(listed) == [operation]
    assert list(Filters(query=f"reason:{name.lower()}").apply(person)) == [operation]


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.database
@pytest.mark.django_db(transaction=True)
def test_rows_with_the_older_name_are_migrated():
    operation, other = claimed(), in_state(State.FAILED)
    migrated([("operations", "0017_ledger")])
    try:
        error = {"code": OLD, "message": "it broke", "traceback": "here"}
        Operation.objects.filter(pk=operation.pk).update(reason=OLD, error=error)
        Operation.objects.filter(pk=other.pk).update(error={**error, "code": "JOB_ERROR"})
        Attempt.objects.filter(operation=operation).update(reason=OLD)
    finally:
        migrated(MigrationExecutor(connection).loader.graph.leaf_nodes())
    operation.refresh_from_db()
    other.refresh_from_db()
    assert (operation.reason, operation.error) == (NEW, {**error, "code": NEW})
    assert other.error["code"] == "JOB_ERROR"
    assert operation.attempts.get().reason == NEW
