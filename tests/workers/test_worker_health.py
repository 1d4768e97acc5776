"""The health probe of worker processes says what the workers themselves wrote."""

import json
import subprocess
import sys
import tempfile

import pytest

from apps.workers.runtime import WorkerProcess
from tests.journey.stack import ROOT
from trainops import worker_health

TOLD = {"status": "BUSY", "current_operation": "op-1", "valid_seconds": 60}


@pytest.fixture(autouse=True)
def own_directory(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def probe():
    done = subprocess.run(
        [sys.executable, "-m", "trainops.worker_health"], cwd=ROOT, capture_output=True, check=False
    )
    return done.returncode, json.loads(done.stdout)


def test_without_a_worker_nothing_is_healthy():
    status, found = probe()
    assert (status, found["healthy"], found["workers"]) == (1, False, [])


def test_a_worker_that_wrote_in_time_is_healthy_and_an_overdue_one_is_not():
    worker_health.tell(worker_id="box/1", **TOLD)
    status, found = probe()
    assert (status, found["healthy"]) == (0, True)
    (worker,) = found["workers"]
    assert worker.pop("timestamp") <= found["timestamp"]
    assert worker == {
        "healthy": True, "worker_id": "box/1", "worker_status": "BUSY", "current_operation": "op-1",
    }  # fmt: skip
    worker_health.tell(worker_id="box-2", **TOLD | {"valid_seconds": -1})
    status, found = probe()
    assert (status, found["healthy"]) == (1, False)
    assert [each["healthy"] for each in found["workers"]] == [False, True]
    worker_health.forget("box-2")
    assert probe()[0] == 0


def test_a_worker_that_has_ended_counts_for_nothing():
    arguments = f"worker_id='gone', **{TOLD}"
    command = f"from trainops import worker_health; worker_health.tell({arguments})"
    subprocess.run([sys.executable, "-c", command], cwd=ROOT, check=True)
    assert probe()[1]["workers"] == []


def test_a_file_that_is_cut_off_is_not_believed(tmp_path):
    worker_health.tell(worker_id="box", **TOLD)
    (path,) = tmp_path.glob("*/box.json")
    path.write_text(path.read_text()[:20])
    assert probe()[0] == 1


@pytest.mark.django_db
def test_a_worker_writes_it_even_while_the_database_is_away(monkeypatch):
    keeper = WorkerProcess()
    keeper.runtime.worker_id = "w"
    monkeypatch.setattr("apps.operations.scheduling.claims.renew", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        keeper._keep_leases()
    (worker,) = probe()[1]["workers"]
    assert (worker["worker_id"], worker["worker_status"]) == ("w", "AVAILABLE")
