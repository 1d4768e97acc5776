"""The privacy ledger of earlier versions is moved into the ledger of every kind as it was."""

import math

import pytest
from django.db import DatabaseError, connection, transaction
from django.db.migrations.executor import MigrationExecutor

from apps.ledger import guards
from apps.ledger.errors import LedgerBroken
from apps.ledger.models import LedgerAccount, LedgerEntry
from apps.ledger.services import account_of, inherit
from apps.ledger.services import append as append_entries
from apps.operations.migrations import _privacy_ledger as before
from tests.ledger.meter import FIELDS as METER
from tests.ledger.meter import entry as reading
from tests.operations.releases import append, spent_by, spent_in
from tests.operations.test_privacy import entry
from tests.thinning import some_of
from trainops import statement_timeout

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database, pytest.mark.slow]
BEFORE = [("operations", "0015_outbox")]


def migrated(targets):
    """Migrate the tests' database to these migrations and to no others: backwards, too."""
    executor = MigrationExecutor(connection)
    with statement_timeout.unlimited():
        executor.migrate(targets)
    return executor.loader.project_state(targets).apps


def to_the_newest():
    migrated(MigrationExecutor(connection).loader.graph.leaf_nodes())


@pytest.fixture
def _ends_at_the_newest():
    yield
    to_the_newest()


def filled():
    append("op_1", 1, [entry(n, client=n % 2) for n in range(1, 5)])
    inherit("op_2", "op_1")
    append(
        "op_2", 1, [entry(1, carried=1e16), entry(2, client=None, level="user", steps=2**63 - 1)]
    )
    account_of("op_3")
    return {each: spent_by(each) for each in ("op_1", "op_2", "op_3")}


def chained():
    return list(LedgerEntry.objects.order_by("pk").values_list("operation_id", "number", "digest"))


def execute(*statements):
    with connection.cursor() as cursor:
        for each in statements:
            cursor.execute(each)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("_ends_at_the_newest")
@pytest.mark.parametrize("target", some_of(["0010_takes_slot", "0015_outbox"], every=2))
def test_rows_are_moved_with_their_digests_and_back(target):
    releases, digests = filled(), chained()
    accounts = list(LedgerAccount.objects.order_by("pk").values())
    tables = migrated([("operations", target)])
    assert tables.get_model("operations", "PrivacyEntry").objects.count() == 6
    assert not LedgerEntry.objects.exists() and not LedgerAccount.objects.exists()
    to_the_newest()
    assert {each: spent_by(each) for each in releases} == releases and chained() == digests
    if target != "0010_takes_slot":  # which knew nothing of the chain's end
        assert list(LedgerAccount.objects.order_by("pk").values()) == accounts
    append("op_2", 2, [entry(9)])
    append("op_3", 2, [entry(9)])
    assert len(spent_by("op_3")) == 1 and spent_in("op_1", 1, 1) == releases["op_1"][::2]
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        execute(f"DELETE FROM {guards.TABLE}")  # noqa: S608
    assert before.TABLE not in connection.introspection.table_names()


@pytest.mark.exhaustive
@pytest.mark.usefixtures("_ends_at_the_newest")
def test_the_tables_of_before_are_guarded_again():
    filled()
    migrated(BEFORE)
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        execute(f"UPDATE {before.TABLE} SET steps = 1")  # noqa: S608


BROKEN = {
    "a changed sample rate": "UPDATE {} SET sample_rate = 0.5 WHERE number = 2",
    "a removed entry": "DELETE FROM {} WHERE number = 3",
    "a cut end": "DELETE FROM {} WHERE number = 4",
    "a removed account": "DELETE FROM operations_privacyaccount",
}


@pytest.mark.exhaustive
@pytest.mark.usefixtures("_ends_at_the_newest")
@pytest.mark.parametrize("how", some_of([*BROKEN], every=2))
def test_a_broken_chain_stays_broken_at_the_same_entry(how, caplog):
    append("op_1", 1, [entry(n) for n in range(1, 5)])
    migrated(BEFORE)
    vendor = connection.vendor
    execute(*before.DROP[vendor], BROKEN[how].format(before.TABLE), *before.CREATE[vendor])
    to_the_newest()
    problem = {
        "a changed sample rate": "entry 2 .* was changed",
        "a removed entry": "entry 3 is missing",
        "a cut end": "entry 4 is missing",
        "a removed account": "its account is missing",
    }[how]
    with pytest.raises(LedgerBroken, match=problem):
        spent_by("op_1")
    is_reported = "The ledger of op_1 was modified before this migration." in caplog.text
    assert is_reported == (how != "a removed account")


@pytest.mark.exhaustive
@pytest.mark.usefixtures("_ends_at_the_newest")
def test_a_number_that_json_cannot_hold_is_moved_and_detected():
    append("op_1", 1, [entry(n) for n in range(1, 5)])
    migrated(BEFORE)
    vendor, value = connection.vendor, "'nan'" if connection.vendor == "postgresql" else "9e999"
    changed = f"UPDATE {before.TABLE} SET carried = {value} WHERE number = 2"  # noqa: S608
    execute(*before.DROP[vendor], changed, *before.CREATE[vendor])
    to_the_newest()
    assert not math.isfinite(float(LedgerEntry.objects.get(number=2).values["carried"]))
    with pytest.raises(LedgerBroken, match="entry 2"):
        spent_by("op_1")


@pytest.mark.exhaustive
@pytest.mark.usefixtures("_ends_at_the_newest")  # later migrations are reverted before it fails
def test_a_ledger_of_another_kind_is_not_moved_back():
    append_entries("op_1", 1, [reading(1)], METER)
    with pytest.raises(RuntimeError, match="op_1 is of a kind that had none before"):
        migrated(BEFORE)
    assert LedgerEntry.objects.count() == 1
