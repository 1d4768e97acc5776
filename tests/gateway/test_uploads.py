"""Bodies that are too large to be collected, through the real web server."""

import os
import socket
import subprocess
import sys
from contextlib import contextmanager

import pytest
from blake3 import blake3

from tests.journey.stack import ROOT, running
from tests.waiting import wait_until

pytestmark = [pytest.mark.journey, pytest.mark.slow]
TABLE = b"number\n" + b"".join(b"%08d\n" % number for number in range(400_000))
ADDRESS = "datasets/uploads"
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


def test_an_upload_of_an_unknown_user_is_refused_before_it_is_read(stack):
    files = {"file": ("large.csv", bytes(200_000), "text/csv")}
    refused = stack.client.post("datasets", files=files, headers={"Authorization": "Bearer no"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "NOT_AUTHENTICATED")


@pytest.fixture
def upload_id(stack):
    digest = f"blake3:{blake3(TABLE).hexdigest()}"
    body = {"filename": "t.csv", "size_bytes": len(TABLE), "digest": digest}
    upload_id = stack.post(ADDRESS, body)["id"]
    yield upload_id
    stack.client.delete(f"{ADDRESS}/{upload_id}")


@contextmanager
def begun(stack, upload_id, part, num_bytes):
    """A connection that has sent `num_bytes` of a part, and sends no more."""
    headers = {
        "Host": f"127.0.0.1:{stack.port}",
        "Authorization": stack.client.headers["Authorization"],
        "Content-Type": "application/offset+octet-stream",
        "Content-Length": len(part),
        "Upload-Offset": 0,
    }
    lines = [f"PATCH /api/v1/{ADDRESS}/{upload_id} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    with socket.create_connection(("127.0.0.1", stack.port)) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + part[:num_bytes])
        yield connection


def offset_of(stack, upload_id):
    return int(stack.client.head(f"{ADDRESS}/{upload_id}").headers["Upload-Offset"])


def send(stack, upload_id, offset):
    headers = {"Content-Type": "application/offset+octet-stream", "Upload-Offset": str(offset)}
    return stack.client.patch(f"{ADDRESS}/{upload_id}", content=TABLE[offset:], headers=headers)


def require_finished(stack, upload_id):
    dataset = stack.post(f"{ADDRESS}/{upload_id}/finish")
    assert dataset["num_rows"] == 400_000
    stack.delete(f"datasets/{dataset['id']}")


def test_an_upload_continues_after_its_connection_was_cut(stack, upload_id):
    with begun(stack, upload_id, TABLE, 3 * 2**20):
        wait_until(lambda: offset_of(stack, upload_id) >= 2**20)
    offset = offset_of(stack, upload_id)
    assert 2**20 <= offset <= 3 * 2**20
    assert stack.client.post(f"{ADDRESS}/{upload_id}/finish").status_code == 409
    sent = wait_until(lambda: (found := send(stack, upload_id, offset_of(stack, upload_id)))
                      .status_code == 204 and found)  # fmt: skip
    assert int(sent.headers["Upload-Offset"]) == len(TABLE)
    require_finished(stack, upload_id)


def test_the_second_of_two_writers_is_refused(stack, upload_id):
    with begun(stack, upload_id, TABLE, 3 * 2**20) as first:
        wait_until(lambda: offset_of(stack, upload_id) >= 2**20)
        second = send(stack, upload_id, offset_of(stack, upload_id))
        assert (second.status_code, second.json()["error"]["code"]) == (409, "UPLOAD_BUSY")
        first.sendall(TABLE[3 * 2**20 :])
        assert first.recv(2**16).startswith(b"HTTP/1.1 204")
    require_finished(stack, upload_id)


def test_the_command_continues_while_the_web_process_is_killed(stack, tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(TABLE)
    env = os.environ | {
        "TRAINOPS_URL": stack.url,
        "TRAINOPS_TOKEN": stack.client.headers["Authorization"].removeprefix("Bearer "),
    }
    small = "from trainops.cli import main, uploading; uploading.PART_BYTES = 50_000; main()"
    command = [sys.executable, "-c", small, "datasets", "add", path]
    with subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        (opened,) = wait_until(lambda: stack.get(ADDRESS))
        wait_until(lambda: offset_of(stack, opened["id"]) > 0)
        for web in stack.processes("trainops.web"):
            web.kill()
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr
    assert "Trying again." in stderr
    assert stack.get(f"datasets/{stdout.strip()}")["num_rows"] == 400_000
