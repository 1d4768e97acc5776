"""Bodies that are too large to be collected, through the real web server."""

import os
import subprocess
import sys
from contextlib import contextmanager

import pytest

from tests.journey.stack import ROOT, running
from tests.waiting import wait_until

pytestmark = [pytest.mark.journey, pytest.mark.slow]
LARGE = {"recipe": "digits", "parameters": {"hidden": 512}, "epochs": 2}


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    with running(tmp_path_factory.mktemp("uploads") / "var") as stack:
        yield stack


@contextmanager
def http_worker(stack):
    token = stack.post("tokens", {"name": "box", "scope": "worker"})["token"]
    env = os.environ | {"TRAINOPS_URL": stack.url, "TRAINOPS_TOKEN": token}
    command = [sys.executable, "-m", "examples.http_worker", "box", "training"]
    with subprocess.Popen(command, cwd=ROOT, env=env) as process:
        try:
            yield
        finally:
            process.kill()


def drain_all(stack):
    """Drain the workers, and wait until each has read that."""
    for worker in stack.get("workers"):
        path = f"workers/{worker['worker_id']}"
        for _ in range(2):  # a heartbeat that was on its way, and one that was not
            before = stack.post(f"{path}/drain")["heartbeat_at"]
            wait_until(lambda path=path, seen=before: stack.get(path)["heartbeat_at"] > seen)


def test_checkpoints_of_a_worker_over_http_arrive_whole(stack):
    ours = stack.submit(**LARGE)
    stack.wait(ours, "COMPLETED")
    drain_all(stack)
    with http_worker(stack):
        foreign = stack.submit(**LARGE)
        stack.wait(foreign, "COMPLETED")
    (attempt,) = stack.get(f"operations/{foreign}/attempts")
    assert attempt["worker_id"] == "box"
    assert stack.artifacts(foreign) == stack.artifacts(ours)


def test_a_large_table_arrives_whole(stack):
    rows = 400_000
    table = b"a,b\n" + b"".join(b"%d,%d\n" % (number, number * 7) for number in range(rows))
    files = {"file": ("large.csv", table, "text/csv")}
    uploaded = stack.client.post("datasets", files=files)
    assert uploaded.status_code == 201, uploaded.text
    assert uploaded.json()["data"]["num_rows"] == rows


def test_an_upload_of_somebody_unknown_is_refused_before_it_is_read(stack):
    files = {"file": ("large.csv", bytes(200_000), "text/csv")}
    refused = stack.client.post("datasets", files=files, headers={"Authorization": "Bearer no"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "NOT_AUTHENTICATED")
