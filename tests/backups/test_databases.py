"""Copies of the database over the connection that the URL describes."""

import json
import os
import subprocess
import sys

import pytest
from django.db import connection

from apps.backups import database
from apps.backups.errors import DatabaseProblem
from trainops import paths

ASK = """
import json
from trainops import settings
print(json.dumps(settings.DATABASES["default"]["OPTIONS"]))
"""


@pytest.fixture
def options(monkeypatch):
    """Have the given parameters of a connection as if they were in the URL."""
    if connection.vendor != "postgresql":
        pytest.skip("SQLite has no connection")

    def change(**given):
        changed = connection.settings_dict["OPTIONS"] | given
        monkeypatch.setitem(connection.settings_dict, "OPTIONS", changed)

    return change


def test_parameters_of_the_url_are_those_of_the_connection(tmp_path):
    url = "postgresql://u@h/n?sslmode=verify-full&connect_timeout=9&options=-c%20search_path%3Down"
    env = os.environ | {"TRAINOPS_DATABASE_URL": url, "TRAINOPS_DATA_DIR": str(tmp_path)}
    command = [sys.executable, "-c", ASK]
    done = subprocess.run(
        command, env=env, cwd=paths.ROOT, capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert (found["sslmode"], found["connect_timeout"]) == ("verify-full", 9)
    assert found["keepalives_idle"] == 5
    assert "statement_timeout=15000" in found["options"]
    assert found["options"].endswith(" -c search_path=own")


@pytest.mark.database
@pytest.mark.django_db(transaction=True)
def test_a_copy_has_the_parameters_and_no_time_limit(options, tmp_path):
    options(application_name="of-the-url")
    queries = ["SHOW application_name", "SHOW idle_in_transaction_session_timeout"]
    found = database.snapshot(tmp_path / "copy", queries)
    assert found == [[("of-the-url",)], [("0",)]]


@pytest.mark.database
@pytest.mark.django_db(transaction=True)
def test_programs_of_postgresql_have_the_parameters(options, tmp_path):
    options(target_session_attrs="standby")
    with pytest.raises(DatabaseProblem, match="pg_dump failed"):
        database._run("pg_dump", "--file", str(tmp_path / "copy"))
    with pytest.raises(DatabaseProblem, match="cannot be copied"):
        database.snapshot(tmp_path / "copy", [])
