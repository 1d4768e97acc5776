"""A database that a newer version contracts below running processes: they save and end."""

import sqlite3
from contextlib import closing

import pytest

from tests.journey.stack import running
from tests.journey.test_shutdown import CONFIG
from tests.waiting import wait_until

pytestmark = [pytest.mark.journey, pytest.mark.slow]
MIGRATION = "0999_contract_a_column"
RECORD = "INSERT INTO django_migrations (app, name, applied) VALUES (?, ?, CURRENT_TIMESTAMP)"
WORKER, WEB = "trainops.celery worker", "trainops.web"


def execute(stack, statement, *values):
    path = stack.data_dir / "trainops.sqlite3"
    with closing(sqlite3.connect(path, timeout=30)) as connection, connection:
        return connection.execute(statement, values).fetchall()


@pytest.mark.exhaustive
def test_running_processes_end_and_what_they_compute_is_saved(tmp_path):
    seconds = {"TRAINOPS_REREGISTRATION_CHECK_INTERVAL_SECONDS": "1"}
    with running(tmp_path / "var", **seconds) as stack:
        operation_id = stack.submit(**CONFIG)
        stack.wait_step(operation_id, 3)
        before = {each.pid for name in (WORKER, WEB) for each in stack.processes(name)}
        assert len(before) >= 2
        execute(stack, RECORD, "operations", MIGRATION)
        state = "SELECT state FROM operations_operation WHERE id = ?"
        wait_until(lambda: execute(stack, state, operation_id) == [("RESUMING",)])
        reason = "SELECT reason, note FROM operations_attempt WHERE operation_id = ?"
        ((code, note),) = execute(stack, reason, operation_id)
        assert code == "SHUTDOWN" and "shutdown checkpoint" in note
        # `up` starts them again, and they refuse
        wait_until(lambda: not before & {each.pid for each in stack.processes(WORKER)})
        wait_until(lambda: stack.look("health") is None)
        assert execute(stack, state, operation_id) == [("RESUMING",)]
        execute(stack, "DELETE FROM django_migrations WHERE name = ?", MIGRATION)
        stack.wait(operation_id, "RUNNING")
