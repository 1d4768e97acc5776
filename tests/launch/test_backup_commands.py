"""`backup` and `restore` as commands: exit codes, what they print, and what can be repeated."""

import os

import pytest

from apps.operations.lifecycle import State
from tests.api.saved import saved
from tests.operations import rows
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
    assert "1 checkpoints, 0 datasets" in said.out and not said.out.startswith(older)
    assert f"no older backup was deleted: {place}/snapshots/{older}" in said.err
    assert backup([place, "--list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert len(listed) == 2 and "1 checkpoints" in listed[0] and "cannot be read" in listed[1]
