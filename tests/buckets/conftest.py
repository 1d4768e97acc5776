"""Prefixes of a bucket on a real S3 server, behind a proxy that fails on request."""

import boto3
import pytest
from botocore.config import Config

from apps.datasets.directories import child, registration
from tests.checkpoints.conftest import moto, s3_proxy  # noqa: F401 - fixtures of these tests, too
from tests.operations.conftest import forkserver, runtime  # noqa: F401 - likewise
from trainops import dataset_buckets
from trainops.datasets import objects

BUCKET = "data"


@pytest.fixture(scope="session", autouse=True)
def credentials():
    """Set before the forkserver starts, which passes its environment to children."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        yield


class Objects:
    """The objects below `shared/` as another client sees them, past the proxy."""

    def __init__(self, port):
        self.client = boto3.client(
            "s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1"
        )
        self.client.create_bucket(Bucket=BUCKET)
        for each in self.client.list_objects_v2(Bucket=BUCKET).get("Contents", ()):
            self.client.delete_object(Bucket=BUCKET, Key=each["Key"])

    def put(self, name, content):
        self.client.put_object(Bucket=BUCKET, Key=f"shared/{name}", Body=content)

    def remove(self, name):
        self.client.delete_object(Bucket=BUCKET, Key=f"shared/{name}")

    def put_all(self, root, prefix):
        for path in sorted(root.rglob("*")):
            if path.is_file():
                self.put(f"{prefix}/{path.relative_to(root)}", path.read_bytes())


@pytest.fixture
def bucket(moto, s3_proxy, settings, monkeypatch, tmp_path):  # noqa: F811 - fixtures
    """The objects of the bucket; prefixes below s3://data/shared are allowed."""
    quick = Config(read_timeout=2, retries={"total_max_attempts": 2, "mode": "standard"})
    monkeypatch.setattr(objects, "CLIENT", objects.CLIENT.merge(quick))
    monkeypatch.setattr(
        registration, "call", lambda module, request, _, kept=(): child.answer(request)
    )
    address = f"http://127.0.0.1:{s3_proxy.port}"
    given = f"s3://{BUCKET}/shared?endpoint_url={address}&region_name=us-east-1"
    settings.DATASET_BUCKETS = dataset_buckets.read({dataset_buckets.VARIABLE: given})
    settings.DATA_DIR = tmp_path / "machine"
    found = Objects(moto)
    s3_proxy.seen.clear()
    yield found
    s3_proxy.disarm()
