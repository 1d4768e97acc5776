"""Rows of clients from before subtasks were a port for any kind."""

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from apps.operations.ids import is_subtask
from apps.operations.lifecycle import State
from apps.operations.models import Subtask
from apps.operations.subtasks import services as subtasks
from tests.ledger.test_migration import migrated
from tests.operations.rows import submitted, subtask_of
from trainops.runtime import subtasks as port

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database, pytest.mark.slow]

OLD = "SELECT server_id, round, client, epochs, begins_with FROM operations_clientpart"


@pytest.mark.exhaustive
def test_a_migrated_client_is_found_by_the_request_for_its_subtask():
    parent = submitted()
    subtask_of(parent, State.PENDING, 3)
    sent_at = Subtask.objects.get().sent_at
    migrated([("operations", "0015_outbox")])
    try:
        with connection.cursor() as cursor:
            cursor.execute(OLD)
            assert list(cursor.fetchall()) == [(parent.pk, 1, 3, 2, "x")]
    finally:
        migrated(MigrationExecutor(connection).loader.graph.leaf_nodes())
    row, requested = Subtask.objects.get(), port.Subtask(1, 3, {"epochs": 2}, 2, begins_with="x")
    assert (row.parent_id, row.spec, row.sent_at) == (parent.pk, {"epochs": 2}, sent_at)
    assert row.identity == requested.identity
    assert subtasks._found(parent, requested) == row


def test_an_identity_never_changes():
    """Rows of existing databases must be found."""
    subtask = port.Subtask(1, 3, {"epochs": 2}, 2, begins_with="x", name="client 3", label="a")
    wanted = "182353f8b2270337b39ff48001a864c4"
    assert subtask.identity.startswith(wanted)


def test_subtasks_are_recognised_by_old_and_new_ids():
    for kind, is_one in (("subtask", True), ("client", True), ("training", False)):
        assert is_subtask(f"op_{kind}_20260101_000000_0123abcd") is is_one
    assert port.is_of_subtask({"part": "client 3"}) and port.is_of_subtask({"subtask": "client 3"})
    assert not port.is_of_subtask({"kind": "federated"})
