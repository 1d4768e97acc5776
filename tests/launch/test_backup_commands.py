"""`backup` and `restore` as commands: exit codes, what they print, and what can be repeated."""

import os
import shutil
import subprocess
import sys

import pytest
from django.db import connection

from apps.operations.lifecycle import State
from tests.api.saved import saved
from tests.operations import rows
from trainops import paths
from trainops.launch import checks
from trainops.launch.backups import backup

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]


@pytest.fixture(autouse=True)
def _installation(settings, monkeypatch):
    mask = os.umask(0)
    os.umask(mask)
    monkeypatch.setattr(checks, "umask", lambda: mask)
    settings.DATA_DIR.mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("TRAINOPS_DATA_DIR", str(settings.DATA_DIR))


def test_a_backup_is_reported_where_an_older_one_cannot_be_read(tmp_path, capsys):
    saved(rows.in_state(State.CANCELLED))
    place = str(tmp_path / "backups")
    assert backup([place]) == 0
    older = capsys.readouterr().out.partition(":")[0]
    (tmp_path / "backups" / "snapshots" / older / "snapshot.json").write_text("{")
    assert backup([place, "--keep", "5"]) == 1
    said = capsys.readouterr()
    assert "1 checkpoints, 0 datasets" in said.out and said.out.partition(":")[0] != older
    assert f"no older backup was deleted: {place}/snapshots/{older}" in said.err
    assert backup([place, "--list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert len(listed) == 2 and "1 checkpoints" in listed[0] and "cannot be read" in listed[1]


def restored(place, data_dir):
    """Run `restore` in a process of its own; return its exit code and output."""
    unset = ("TRAINOPS_DATABASE_URL", "DJANGO_SETTINGS_MODULE")
    env = {name: value for name, value in os.environ.items() if name not in unset}
    command = [sys.executable, "-m", "trainops", "restore", place, "--data-dir", str(data_dir)]
    done = subprocess.run(
        command, env=env, cwd=paths.ROOT, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.skipif(connection.vendor != "sqlite", reason="the backup is one of SQLite")
def test_a_failed_restore_is_repeated_in_the_same_directory(tmp_path, capsys):
    saved(rows.in_state(State.CANCELLED))
    place, data_dir = tmp_path / "backups", tmp_path / "new"
    assert backup([str(place)]) == 0
    (database,) = place.glob("snapshots/*/database")
    shutil.copyfile(database, tmp_path / "intact")
    database.write_bytes(b"altered")
    code, output = restored(str(place), data_dir)
    assert (code, "is damaged: the database" in output) == (2, True), output
    shutil.copyfile(tmp_path / "intact", database)
    code, output = restored(str(place), data_dir)
    assert code == 0, output
    assert (data_dir / "trainops.sqlite3").stat().st_mode & 0o777 == 0o600
    assert not list(data_dir.glob(".draft-*"))
    code, output = restored(str(place), data_dir)
    assert (code, "has an installation (trainops.sqlite3)" in output) == (2, True), output
