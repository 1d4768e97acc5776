"""A real S3 server process, and a proxy before it that fails on request."""

import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import boto3
import httpx
import pytest
from botocore.config import Config

from apps.checkpoints import remote, s3
from apps.checkpoints.removals import REMOVALS
from apps.checkpoints.trying import RetryPolicy
from tests.faults.http_proxy import http_proxy
from tests.operations.conftest import forkserver, runtime  # noqa: F401 - fixtures of these tests, too
from tests.waiting import wait_until
from trainops import checkpoint_storage

BUCKET, PREFIX = "kept", "of/tests"


@contextmanager
def serving(command, log):
    """Run a server whose command ends with its port; yield that once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with log.open("wb") as output:
        server = subprocess.Popen([*command, str(port)], stdout=output, stderr=output)

    def answers():
        try:
            httpx.get(f"http://127.0.0.1:{port}/")
        except httpx.TransportError:
            return False
        return True

    try:
        wait_until(answers)
        yield port
    finally:
        server.kill()
        server.wait(10)


@pytest.fixture(scope="session")
def moto(tmp_path_factory):
    """The port of a moto server of its own process."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p"]
    with serving(command, tmp_path_factory.mktemp("moto") / "log") as port:
        yield port


@pytest.fixture(scope="session")
def s3_proxy(moto):
    with http_proxy(moto) as made:
        yield made


class Store:
    """The bucket as another process sees it, past the proxy."""

    def __init__(self, port):
        self.client = boto3.client(
            "s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1",
            aws_access_key_id="somebody", aws_secret_access_key="else",
        )  # fmt: skip

    def empty(self):
        for name in self.names(""):
            self.client.delete_object(Bucket=BUCKET, Key=name)
        for upload in self.parts():
            self.client.abort_multipart_upload(
                Bucket=BUCKET, Key=upload["Key"], UploadId=upload["UploadId"]
            )

    def names(self, prefix=PREFIX + "/op_"):
        found = self.client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", ())
        return [each["Key"] for each in found]

    def of(self, checkpoint):
        return self.names(f"{PREFIX}/{checkpoint.artifacts_path}/")

    def parts(self):
        return self.client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", ())

    def key(self, checkpoint, name="model.pt"):
        return f"{PREFIX}/{checkpoint.artifacts_path}/{name}"

    def damage(self, checkpoint, name="model.pt"):
        """Flip one bit of one of its files."""
        key = self.key(checkpoint, name)
        content = bytearray(self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read())
        content[len(content) // 2] ^= 1
        self.client.put_object(Bucket=BUCKET, Key=key, Body=bytes(content))

    def lose(self, checkpoint, name="model.pt"):
        self.client.delete_object(Bucket=BUCKET, Key=self.key(checkpoint, name))


@pytest.fixture
def machine(settings, tmp_path):
    """Go over to another machine, with a disk of its own: `machine("second")`."""

    def go(name: str) -> Path:
        settings.CHECKPOINT_ROOT = tmp_path / name / "checkpoints"
        return settings.CHECKPOINT_ROOT

    return go


@pytest.fixture
def store(moto, s3_proxy, machine, settings, monkeypatch):
    """Checkpoints in a bucket behind the proxy, with short timeouts."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    quick = Config(read_timeout=1, connect_timeout=1)
    monkeypatch.setattr(s3, "PATIENT", s3.PATIENT.merge(quick))
    monkeypatch.setattr(remote, "BACKGROUND", RetryPolicy(tries=3, first_seconds=0.1))
    monkeypatch.setattr(remote, "ASKED", RetryPolicy(tries=2, first_seconds=0.1))
    machine("first")
    settings.CHECKPOINT_BUCKET = checkpoint_storage.parse(
        f"s3://{BUCKET}/{PREFIX}?endpoint_url=http://127.0.0.1:{s3_proxy.port}&region_name=us-east-1"
    )
    store = Store(moto)
    store.client.create_bucket(Bucket=BUCKET)
    store.empty()
    s3_proxy.seen.clear()
    yield store
    s3_proxy.disarm()
    REMOVALS.join()
    remote._connected.cache_clear()
    remote.quick.cache_clear()
