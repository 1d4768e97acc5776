"""A database that acknowledges and never answers, behind a proxy that stalls."""

import time

import pytest
from django.db import OperationalError, connection

from tests.faults.proxy import proxy
from tests.waiting import wait_until
from trainops import statement_timeout
from trainops.launch import prepare

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True), pytest.mark.database]


@pytest.fixture
def line():
    """The test's connection, led through a proxy."""
    if connection.vendor != "postgresql":
        pytest.skip("SQLite has no connection that could hang")
    given = connection.settings_dict.copy()
    address = (given["HOST"] or "127.0.0.1", int(given["PORT"] or 5432))
    with proxy(address) as line:
        connection.close()
        connection.settings_dict |= {"HOST": "127.0.0.1", "PORT": str(line.port)}
        yield line
        connection.close()
        connection.settings_dict |= given


def ask():
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        return cursor.fetchone()[0]


def test_a_call_that_is_never_answered_ends_with_an_error(line):
    assert ask() == 1
    line.become("stall")
    began = time.monotonic()
    with pytest.raises(OperationalError), statement_timeout.at_most(0.5):
        ask()
    assert time.monotonic() - began < 5
    line.become("pass")
    connection.close()
    assert ask() == 1


def test_who_does_not_wait_for_an_answer_is_left_alone(line):
    with statement_timeout.at_most(0.3):
        assert ask() == 1
        before = connection.connection
        until = time.monotonic() + 1
        wait_until(lambda: time.monotonic() > until)  # busy with something else
        assert ask() == 1
    assert connection.connection is before


def limits():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT current_setting('statement_timeout'),"
            " current_setting('idle_in_transaction_session_timeout')"
        )
        return cursor.fetchone()


def test_migrations_may_take_their_time(monkeypatch):
    if connection.vendor != "postgresql":
        pytest.skip("SQLite limits no statement")
    seen = []
    monkeypatch.setattr("apps.installation.schema.plan", lambda: ["one"])
    monkeypatch.setattr(prepare, "call_command", lambda *_, **__: seen.append(limits()))
    prepare._migrate()
    assert seen == [("0", "0")]
    assert limits() == ("15s", "10s")
