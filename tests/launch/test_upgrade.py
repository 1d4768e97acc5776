"""`upgrade --check`, and older versions that meet a newer database, as real processes."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
EXPANDED, CONTRACTED = "0999_a_further_column", "0999_contract_a_column"
CELERY = ("-m", "celery", "--app", "trainops.celery")


class Installation:
    """A migrated SQLite database in a data directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.env = {
            **os.environ,
            "TRAINOPS_DATA_DIR": str(directory),
            "TRAINOPS_ADMIN_PASSWORD": "x",
        }
        self.env.pop("TRAINOPS_DATABASE_URL", None)

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT, env=self.env, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip

    def execute(self, statement: str, *values: str) -> None:
        path = Path(self.env["TRAINOPS_DATA_DIR"]) / "trainops.sqlite3"
        with sqlite3.connect(path) as connection:
            connection.execute(statement, values)
        connection.close()

    def record(self, name: str) -> None:
        self.execute(
            "INSERT INTO django_migrations (app, name, applied) "
            "VALUES ('operations', ?, CURRENT_TIMESTAMP)",
            name,
        )

    def check(self) -> tuple[int, Any]:
        done = self.run("-m", "trainops", "upgrade", "--check", "-o", "json")
        return done.returncode, json.loads(done.stdout or "null")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    directory = tmp_path_factory.mktemp("prepared") / "var"
    assert Installation(directory).run("-m", "trainops.launch.prepare").returncode == 0
    return directory


@pytest.fixture
def installation(prepared, tmp_path):
    return Installation(Path(shutil.copytree(prepared, tmp_path / "var")))


def test_without_check_it_changes_nothing_and_says_what_does(installation):
    done = installation.run("-m", "trainops", "upgrade")
    assert done.returncode == 2
    assert "got no --check" in done.stderr


def test_the_check_tells_what_has_to_be_done(installation):
    code, found = installation.check()
    assert (code, found["verdict"], found["pending"]) == (0, "nothing to do", [])

    installation.record(EXPANDED)
    code, found = installation.check()
    assert (code, found["verdict"]) == (0, "nothing to do")
    assert found["unknown"] == [f"operations.{EXPANDED}"]

    installation.record(CONTRACTED)
    code, found = installation.check()
    assert (code, found["verdict"]) == (2, "refused")
    assert CONTRACTED in found["message"]

    installation.execute("DELETE FROM django_migrations WHERE name LIKE '0999%'")
    pending = ["operations.0048_latest_values"]  # a further table
    installation.execute("DELETE FROM django_migrations WHERE name = '0048_latest_values'")
    code, found = installation.check()
    assert (code, found["verdict"], found["pending"]) == (0, "rolling", pending)

    earlier = (
        "0038_nodes", "0039_shares", "0040_project_members", "0041_preemption", "0042_budgets",
        "0043_storage_quotas",
    )  # fmt: skip
    pending[:0] = [f"operations.{name}" for name in earlier]
    for name in earlier:
        installation.execute("DELETE FROM django_migrations WHERE name = ?", name)
    code, found = installation.check()
    assert (code, found["verdict"], found["pending"]) == (1, "stop first", pending)
    assert found["running"] == 0


PROCESSES = pytest.mark.parametrize(
    "process",
    [
        (*CELERY, "worker"),
        (*CELERY, "beat", "--pidfile="),
        ("-m", "trainops.web", "--port", "0"),
        ("-m", "trainops.launch.prepare"),
    ],
    ids=["worker", "beat", "web", "prepare"],
)


@PROCESSES
def test_an_older_version_does_not_start_with_a_contracted_database(installation, process):
    installation.record(CONTRACTED)
    done = installation.run(*process)
    assert done.returncode != 0
    assert f"operations.{CONTRACTED}" in done.stdout + done.stderr


@PROCESSES
def test_a_newer_version_starts_after_the_migrations(installation, process):
    installation.execute("DELETE FROM django_migrations WHERE name = '0048_latest_values'")
    done = installation.run(*process, *(["--check"] if process[-1].endswith("prepare") else []))
    assert done.returncode != 0
    assert "The database is older than this trainops (1 migrations are missing)" in (
        done.stdout + done.stderr
    )
