"""A user is erased while an operation runs, by a command that is killed and run again."""

import json
import sqlite3
import subprocess

import pytest

from tests.journey.stack import PROGRAM, ROOT, _environment, running
from tests.waiting import wait_until

pytestmark = [pytest.mark.journey, pytest.mark.slow]
CONFIG = {"recipe": "scripted", "epochs": 10_000, "checkpoint": {"every_steps": 20}}


@pytest.mark.exhaustive
def test_a_killed_erasure_is_finished_by_the_same_command(tmp_path):
    directory = tmp_path / "var"
    own = _environment({"TRAINOPS_DATA_DIR": str(directory), "DJANGO_SUPERUSER_PASSWORD": "x"})
    erase = [*PROGRAM, "erase", "admin", "--confirm", "admin"]

    def run(command):
        return subprocess.run(
            command, cwd=ROOT, env=own, capture_output=True, text=True, check=False
        )

    def erasures():
        with sqlite3.connect(directory / "trainops.sqlite3") as database:
            return database.execute("SELECT COUNT(*) FROM installation_erasure").fetchone()[0]

    with running(directory) as stack:
        operation_id = stack.submit(**CONFIG)
        stack.wait_step(operation_id, 60)
        files = directory / "checkpoints" / operation_id
        assert any(files.iterdir())
        assert "only active superuser" in run(erase).stderr
        other = ("createsuperuser", "--noinput", "--username", "second", "--email", "a@example.org")
        assert run([PROGRAM[0], "manage.py", *other]).returncode == 0

        first = subprocess.Popen(erase, cwd=ROOT, env=own, stderr=subprocess.DEVNULL)
        wait_until(erasures)
        first.kill()
        first.wait()
        done = run(erase)
        assert done.returncode == 0, done.stderr
        certificate = json.loads(done.stdout)
        (erased,) = certificate["erased"]["operations"]
        assert erased["id"] == operation_id and erased["num_checkpoints"] > 0
        assert not files.exists()
        assert "There is no user" in run(erase).stderr
        stack.process.poll()
        assert stack.process.returncode is None  # the installation continues
