"""Killed at any point of a save, with either storage: a whole newest checkpoint, nothing left over.

Real processes: a worker runtime that dies, or its child, and another that finds what is left.
The moments of the child are numbered in tests.engines.moments, those of the worker in
tests.faults.victim; the third save is the one, for which retention lets an older one go.
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.checkpoints.conftest import BUCKET, Store
from tests.engines.moments import MOMENTS
from tests.faults.victim import SUPERVISOR, SUPERVISOR_WITH_BUCKET
from tests.thinning import some_of

pytestmark = [pytest.mark.slow, pytest.mark.faults]
ROOT = Path(__file__).resolve().parents[2]
ABSENT = {"TRAINOPS_DATABASE_URL", "TRAINOPS_BROKER_URL", "TRAINOPS_CHECKPOINT_STORAGE"}


class Killed(Exception):
    pass


class Stand:
    """One victim after the other, on the same database and storage."""

    def __init__(self, directory, storage, store):
        self.store = store
        self.log = directory / "log"
        self.environment = {name: v for name, v in os.environ.items() if name not in ABSENT} | {
            "DJANGO_SETTINGS_MODULE": "trainops.settings",
            "TRAINOPS_DATA_DIR": str(directory),
            "TRAINOPS_CHECKPOINT_STORAGE": storage,
            "TRAINOPS_CHECKPOINT_RESERVE_BYTES": "0",
            "TRAINOPS_UNOWNED_FILE_AGE_SECONDS": "0.001",
            "TRAINOPS_RECIPES": "tests.engines.toy:RECIPE",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }
        self.process = self.standby = None

    def ask(self, do, **more):
        """Return the victim's answer. Raises Killed where it died instead."""
        if self.process is None:
            self.start()
        self.process.stdin.write(json.dumps({"do": do} | more) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def start(self):
        """Take the next victim; another warms up meanwhile, because that takes seconds."""
        self.process = self.standby or self.new()
        assert self.answer() == {"ready": True}
        self.standby = self.new()

    def new(self):
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.faults.victim"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT,
                env=self.environment,
            )  # fmt: skip

    def answer(self):
        for line in self.process.stdout:
            if line.startswith(("{", "[", '"', "true", "false")):
                return json.loads(line)
        process, self.process = self.process, None
        code = ended(process)
        assert code == -signal.SIGKILL, self.log.read_text()[-3000:]
        raise Killed

    def close(self):
        for process in filter(None, (self.process, self.standby)):
            ended(process)

    def run_undisturbed(self):
        operation_id = self.ask("submit")
        self.ask("attempt", operation_id=operation_id)
        return self.ask("look", operation_id=operation_id)


def ended(process):
    """Let a victim end, if it has not; return how it did."""
    with process, suppress(BrokenPipeError):
        process.stdin.close()
    return process.returncode


@pytest.fixture(scope="module", params=["disk", "bucket"])
def stand(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("stand")
    if request.param == "disk":
        stand = Stand(directory, str(directory / "checkpoints"), None)
    else:
        port = request.getfixturevalue("moto")
        store = Store(port)
        store.client.create_bucket(Bucket=BUCKET)
        prefix = f"of/kills-{os.getpid()}"
        stand = Stand(
            directory,
            f"s3://{BUCKET}/{prefix}?endpoint_url=http://127.0.0.1:{port}&region_name=us-east-1",
            store,
        )
        stand.prefix = prefix
    stand.whole = stand.run_undisturbed()
    yield stand
    stand.close()


@pytest.mark.parametrize("moment", some_of(MOMENTS, every=5))
def test_the_death_of_the_child(stand, moment):
    operation_id = stand.ask("submit")
    stand.ask("attempt", operation_id=operation_id, child_point=moment)
    require_all_is_well(stand, operation_id)


@pytest.mark.parametrize("point", some_of([*SUPERVISOR, *SUPERVISOR_WITH_BUCKET], every=4))
def test_the_death_of_the_worker(stand, point):
    if stand.store is None and point in SUPERVISOR_WITH_BUCKET:
        return  # there is no such moment without a bucket
    operation_id = stand.ask("submit")
    with pytest.raises(Killed):
        stand.ask("attempt", operation_id=operation_id, point=point)
    assert stand.ask("lose", operation_id=operation_id) == "RESUMING"
    require_all_is_well(stand, operation_id)


def require_all_is_well(stand, operation_id):
    found = stand.ask("look", operation_id=operation_id)
    assert found["state"] == "RESUMING" and not found["problems"]
    assert found["num_rows"] == len(found["steps"]), "one is marked corrupted"
    assert found["steps"], "two saves were committed before"

    stand.ask("attempt", operation_id=operation_id)
    ended = stand.ask("look", operation_id=operation_id)
    assert ended["state"] == "COMPLETED" and not ended["problems"]
    assert ended["from_steps"][1] >= found["steps"][0]
    assert (ended["files"], ended["curve"]) == (stand.whole["files"], stand.whole["curve"])

    left = [path for path in stand.ask("sweep") if path.startswith(operation_id)]
    assert left == ended["paths"]
    if stand.store is not None:
        names = stand.store.names(f"{stand.prefix}/{operation_id}/")
        assert set(names) == {f"{stand.prefix}/{name}" for name in ended["objects"]}
        assert not [each for each in stand.store.parts() if operation_id in each["Key"]]
