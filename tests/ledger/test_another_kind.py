"""A kind registered outside of trainops appends to a ledger with fields of its own."""

import os
import signal
import sys

import pytest
from django.db import DatabaseError, connection, transaction

from apps.ledger import guards
from apps.ledger import services as ledgers
from apps.ledger.errors import LedgerBroken
from apps.ledger.models import LedgerAccount, LedgerEntry
from apps.operations.attempts import work
from apps.operations.attempts.children import ForkServer
from apps.operations.requests import forking, services
from apps.operations.scheduling.slots import Slots
from tests.ledger.meter import FIELDS, entry
from tests.operations.attempts import Running, run
from tests.operations.tampering import tampered
from tests.waiting import wait_until
from trainops.kind import KINDS

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]


@pytest.fixture(scope="module", autouse=True)
def _registered(tmp_path_factory):
    """Install a distribution with the kind's entry point, for this process and its children."""
    root = tmp_path_factory.mktemp("site")
    installed = root / "meter-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: meter\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[trainops.kinds]\nmeter = tests.ledger.meter:KIND")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(root)])
        patch.setenv("PYTHONPATH", os.pathsep.join([*filter(None, sys.path)]))
        vars(KINDS).pop("_kinds", None)
        yield
    vars(KINDS).pop("_kinds", None)


@pytest.fixture(scope="module")
def forkserver(_registered):
    """A forkserver that knows the kind."""
    forkserver = ForkServer()
    forkserver.open()
    wait_until(lambda: forkserver.is_ready)
    yield forkserver
    forkserver.close()


@pytest.fixture
def runtime(settings, tmp_path, forkserver):
    settings.CHECKPOINT_ROOT = tmp_path / "checkpoints"
    runtime = work.WorkerRuntime()
    runtime.worker_id, runtime.slots = "worker-1", Slots(count=1)
    runtime.forkserver = forkserver
    return runtime


def submit(**config):
    return services.submit(kind="meter", config=config, owner=None)


def readings(count, is_own=True):
    return [
        each if is_own else type(each)(**{**fields_of(each), "is_own": False})
        for each in map(entry, range(1, count + 1))
    ]


def fields_of(each):
    return {"identity": each.identity, "step": each.step, "values": each.values}


@pytest.mark.slow
@pytest.mark.usefixtures("own_process")  # a process that was forked before does not know the kind
def test_killed_and_resumed_its_entries_are_those_of_an_undisturbed_run(runtime, person):
    operation = submit(seconds=0.05, checkpoint={"every_steps": 2})
    running = Running(runtime, operation).until_step(5)
    os.kill(running.pid, signal.SIGKILL)
    assert running.ended().state == "RESUMING"
    recorded = ledgers.entries_of(operation.pk, FIELDS)
    assert recorded == readings(len(recorded)) and len(recorded) >= 5, "durable before the step"
    operation.row.update(not_before=None)
    done = run(runtime, operation)
    assert (done.state, done.attempt) == ("COMPLETED", 2), done.error
    assert done.result == {"total": sum(range(1, 9)) / 4, "entries": 8}
    assert ledgers.entries_of(operation.pk, FIELDS) == readings(8)
    attempts = LedgerEntry.objects.order_by("number").values_list("number", "attempt")
    assert [each[0] for each in attempts] == list(range(1, 9))
    assert {each[1] for each in attempts} == {1, 2}
    fork = forking.fork(operation_id=operation.pk, owner=person)
    assert ledgers.entries_of(fork.pk, FIELDS) == readings(8, is_own=False)


@pytest.mark.slow
def test_its_rows_are_append_only_and_a_change_refuses_the_next_attempt(runtime):
    operation = submit()
    ledgers.append(operation.pk, 1, readings(3), FIELDS)
    for statement in (f"DELETE FROM {guards.TABLE}", f"UPDATE {guards.TABLE} SET step = 1"):  # noqa: S608
        with (
            pytest.raises(DatabaseError, match="append-only"),
            transaction.atomic(),
            connection.cursor() as cursor,
        ):
            cursor.execute(statement)
    changed = """UPDATE {entries} SET "values" = '{{"value": 0.5, "unit": "kWh", "place": "attic",
        "series": null}}' WHERE number = 2"""
    tampered(changed)
    with pytest.raises(LedgerBroken, match=r"entry 2 \(identity reading 2, step 2\) was changed"):
        ledgers.verify(operation.pk, FIELDS)
    failed = run(runtime, operation)
    assert (failed.state, failed.reason) == ("FAILED", "PRIVACY_LEDGER_MISMATCH")


def test_values_of_other_fields_are_refused():
    one = entry(1)
    wrong = type(one)(identity="a", step=1, values={**one.values, "unit": "miles"})
    with pytest.raises(ValueError, match=r"unit of 'a': got 'miles'; allowed: one of kWh, m3"):
        ledgers.append("op_1", 1, [one, wrong], FIELDS)
    assert not LedgerEntry.objects.exists() and not LedgerAccount.objects.exists()
