"""Whoever changes a row of the privacy ledger is found out, and the databases refuse it at all."""

import json
import threading
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext

from apps.checkpoints import place
from apps.ledger import chain, guards
from apps.ledger.errors import LedgerBroken
from apps.ledger.models import LedgerAccount, LedgerEntry
from apps.ledger.services import inherit
from apps.operations.attempts import remote_claims
from apps.operations.requests import forking, services
from tests.operations.attempts import run
from tests.operations.releases import append, spent_by, spent_in, verify
from tests.operations.rows import OFFER
from tests.operations.tampering import tampered
from tests.operations.test_privacy import entry, killed, submit
from tests.thinning import quick_some
from trainops.errors import DomainError
from trainops.kinds.federated.releases import FIELDS

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]


@pytest.fixture(autouse=True)
def _storage_of_its_own(settings, tmp_path):
    settings.CHECKPOINT_ROOT = tmp_path / "checkpoints"


def edited(number):
    """Return a statement that lowers the sample rate of an entry."""
    values = json.dumps({**VALUES, "client": number % 2, "sample_rate": 0.0001})
    literal = values.replace("{", "{{").replace("}", "}}")
    return f"UPDATE {{entries}} SET \"values\" = '{literal}' WHERE number = {number}"  # noqa: S608


def ledger(operation_id="op_1", count=4):
    append(operation_id, 1, [entry(n, client=n % 2) for n in range(1, count + 1)])
    return operation_id


@pytest.mark.parametrize("statement", ["UPDATE {entries} SET step = 1", "DELETE FROM {entries}"])
def test_the_database_refuses_to_change_or_delete_an_entry(statement):
    ledger()
    before = spent_by("op_1")
    filled = statement.format(entries=guards.TABLE)
    for one in (filled, f"{filled} WHERE number = 2"):
        with (
            pytest.raises(DatabaseError, match="append-only"),
            transaction.atomic(),
            connection.cursor() as cursor,
        ):
            cursor.execute(one)
    assert spent_by("op_1") == before


def test_flush_empties_the_ledger_and_the_next_one_is_guarded():
    ledger()
    call_command("flush", interactive=False, verbosity=0)
    assert not LedgerEntry.objects.exists()
    test_the_database_refuses_to_change_or_delete_an_entry("DELETE FROM {entries}")


VALUES = {
    "round": 1, "client": 0, "level": "sample", "noise_multiplier": 1.0, "sample_rate": 0.1,
    "steps": 10, "carried": 0.0,
}  # fmt: skip
CHANGES = {
    "attempt": ["7"], "identity": ["'00'"], "step": ["9"],
    "recorded_at": ["'2020-01-01 00:00:00+00:00'"],
    "subtask_group": ["9", "NULL"], "subtask_index": ["1", "NULL"],
    "values": [
        *(VALUES | change for change in (
            {"round": 9}, {"client": 9}, {"client": None}, {"level": "user"}, {"steps": 1},
            {"noise_multiplier": 2.0}, {"sample_rate": 0.05}, {"carried": 0.5},
            # The same text, but of another type; a value more.
            {"steps": "10"}, {"steps": 10.0}, {"sample_rate": "0.1"}, {"client": False},
            {"more": 1},
        )),
        {name: value for name, value in VALUES.items() if name != "carried"},
        {"more" if name == "client" else name: value for name, value in VALUES.items()},
        [], None, 5,
    ],
}  # fmt: skip


def literals(column):
    """Return the new values of a column as SQL."""
    return [each if isinstance(each, str) else f"'{json.dumps(each)}'" for each in CHANGES[column]]


@pytest.mark.parametrize(
    ("column", "literal"),
    quick_some([(name, each) for name in CHANGES for each in literals(name)], every=4),
)
def test_a_change_of_any_column_is_found_and_its_entry_named(column, literal):
    ledger()
    literal = literal.replace("{", "{{").replace("}", "}}")
    tampered(f'UPDATE {{entries}} SET "{column}" = {literal} WHERE number = 2')  # noqa: S608
    with pytest.raises(LedgerBroken, match=r"op_1 .*entry 2 \(identity .*\) was changed"):
        spent_by("op_1")


def test_every_column_is_tried():
    fixed = {"id", "operation_id", "number", "digest"}
    assert {each.column for each in LedgerEntry._meta.fields} - fixed == CHANGES.keys()
    assert set(FIELDS.names) == VALUES.keys()


@pytest.mark.parametrize(
    ("statements", "problem"),
    [
        (["DELETE FROM {entries} WHERE number = 1"], "entry 1 is missing"),
        (["DELETE FROM {entries} WHERE number = 3"], "entry 3 is missing"),
        (["DELETE FROM {entries} WHERE number = 4"], "entry 4 is missing"),
        (["DELETE FROM {entries}"], "entry 1 is missing"),
        (["DELETE FROM {entries} WHERE number = 4", "UPDATE {accounts} SET num_entries = 3"],
         "entry 3 is not as recorded in its account"),
        (["DELETE FROM {entries} WHERE number = 3",
          "UPDATE {entries} SET number = 3 WHERE number = 4"], "entry 3 .* was changed"),
        (["UPDATE {entries} SET number = 9 WHERE number = 1",
          "UPDATE {entries} SET number = 1 WHERE number = 2",
          "UPDATE {entries} SET number = 2 WHERE number = 9"], "entry 1 .* was changed"),
        (["UPDATE {entries} SET operation_id = 'op_2' WHERE number = 4"], "entry 4 is missing"),
        (["UPDATE {accounts} SET secret = '00'"], "entry 1 .* was changed"),
        (["DELETE FROM {accounts}"], "its account is missing"),
        (["UPDATE {accounts} SET num_entries = 3"], "entry 3 is not as recorded"),
    ],
)  # fmt: skip
def test_what_is_missing_moved_or_cut_off_is_found(statements, problem):
    ledger()
    tampered(*statements)
    with pytest.raises(LedgerBroken, match=problem):
        spent_by("op_1")


def test_an_ancestors_entries_and_whom_a_fork_inherits_from_are_checked_too():
    ledger("op_1")
    inherit("op_2", "op_1")
    verify("op_2")
    tampered("UPDATE {accounts} SET ancestors = '[]' WHERE operation_id = 'op_2'")
    with pytest.raises(LedgerBroken, match=r"op_2 .*the ancestors are not"):
        spent_by("op_2")
    tampered("UPDATE {accounts} SET ancestors = '[\"op_1\"]' WHERE operation_id = 'op_2'",
             edited(3))  # fmt: skip
    with pytest.raises(LedgerBroken, match=r"op_1 .*entry 3"):
        verify("op_2")


def test_what_one_client_spent_is_checked_where_it_is_read_alone():
    ledger()
    assert [each.step for each in spent_in("op_1", 1, 1)] == [1, 3]
    tampered(edited(3))
    with pytest.raises(LedgerBroken, match="entry 3"):
        spent_in("op_1", 1, 1)
    assert [each.step for each in spent_in("op_1", 1, 0)] == [2, 4]


@pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL scans a small table")
def test_what_one_client_spent_is_found_by_an_index():
    ledger()
    with CaptureQueriesContext(connection) as queries:
        spent_in("op_1", 1, 1)
    (query,) = [each["sql"] for each in queries if '"subtask_group" = ' in each["sql"]]
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {query}")
        assert "ledger_subtask" in str(cursor.fetchall())


def test_who_writes_at_once_writes_one_after_the_other():
    """Clients on several machines write into their server's ledger."""

    def write(first):
        try:
            for number in range(first, first + 10):
                append("op_1", 1, [entry(number)])
        finally:
            connection.close()

    threads = [threading.Thread(target=write, args=(first,)) for first in (0, 5, 20)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(spent_by("op_1")) == 25


def test_a_digest_never_changes():
    """What is written in databases out there must stay valid."""
    values = dict(zip(FIELDS.names, [1, None, "user", 1.5, 1, 10, -0.0], strict=True))
    secret, moment = "5e" * 32, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    first = chain.beginning(secret, "op_1", [])
    texts = FIELDS.texts("ab" * 16, 3, values)
    found = chain.digest(secret, first, number=1, attempt=2, recorded_at=moment, texts=texts)
    assert found == "b1cdc52b3b61286c46954980c346755fd2cbc6f3992c43473c5ca2ff6441ead2"


def test_a_worker_over_http_gets_nothing_of_a_ledger_that_was_changed():
    place.require()
    operation = submit()
    ledger(operation.pk)
    tampered(edited(2))
    offer = replace(OFFER, kinds=["federated"])
    assert remote_claims.claim(worker_id="gpu-box", host="host", offer=offer) is None
    failed = services.get(operation.pk)
    assert (failed.state, failed.reason) == ("FAILED", "PRIVACY_LEDGER_MISMATCH")
    assert "entry 2 (identity" in failed.error["message"]


def test_nothing_is_written_after_entries_whose_account_is_gone():
    ledger()
    tampered("DELETE FROM {accounts}")
    with pytest.raises(LedgerBroken, match="it has entries, but its account has none"):
        append("op_1", 1, [entry(9)])
    assert not LedgerAccount.objects.exists() and LedgerEntry.objects.count() == 4


@pytest.mark.slow
def test_an_edited_sample_rate_refuses_resume_fork_and_start(runtime, person):
    keep = {"checkpoint": {"keep_last": 500}}
    operation = submit(person, **keep)
    killed(runtime, operation, at=8)
    tampered(edited(2))
    failed = run(runtime, operation)
    assert (failed.state, failed.reason) == ("FAILED", "PRIVACY_LEDGER_MISMATCH")
    assert "entry 2 (identity" in failed.error["message"]
    for wish in (
        lambda: services.resume(operation_id=operation.pk, actor=person),
        lambda: forking.fork(operation_id=operation.pk, owner=person),
    ):
        with pytest.raises(DomainError, match="entry 2") as refused:
            wish()
        assert (refused.value.code, refused.value.status) == ("PRIVACY_LEDGER_MISMATCH", 409)
    assert services.get(operation.pk).state == "FAILED"
