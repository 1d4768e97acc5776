"""Uploads in parts: what is continued after a cut, what is sent again, and what is refused."""

import hashlib
import random
import threading

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from apps.checkpoints import remote, s3, s3_uploads
from apps.checkpoints.objects import FileContent
from apps.checkpoints.trying import NobodyWaits, StorageFailed
from tests.checkpoints.conftest import BUCKET, PREFIX
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.django_db]
NAME = "op_training_20260101_000000_aaaaaa/a0001-s0000000010-periodic/model.pt"
KEY = f"{PREFIX}/{NAME}"
PART = s3_uploads.PART_BYTES
NUM_PARTS = 5


@pytest.fixture(autouse=True)
def patience(store, monkeypatch):
    """A busy machine may take more than a second for what is sent: then it is sent twice."""
    monkeypatch.setattr(s3, "PATIENT", s3.PATIENT.merge(Config(read_timeout=20)))


@pytest.fixture
def content():
    return random.Random(7).randbytes((NUM_PARTS - 1) * PART + 1000)  # noqa: S311


@pytest.fixture
def file(content, tmp_path):
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    return path


def put(file, stop=None):
    remote.bucket().objects.put(file, NAME, stop or threading.Event())


def stored(store):
    return store.client.get_object(Bucket=BUCKET, Key=KEY)["Body"].read()


def num_sent(s3_proxy):
    return sum(method == "PUT" for method, _ in s3_proxy.seen)


def begun(store, parts):
    """Have an upload of these parts, by number, that was not completed."""
    target = {"Bucket": BUCKET, "Key": KEY}
    upload_id = store.client.create_multipart_upload(**target)["UploadId"]
    for number, content in parts.items():
        store.client.upload_part(**target, UploadId=upload_id, PartNumber=number, Body=content)
    return upload_id


def split(content, part_bytes=PART):
    return {
        number: content[first : first + part_bytes]
        for number, first in enumerate(range(0, len(content), part_bytes), start=1)
    }


@pytest.mark.parametrize("seed", range(4))
def test_only_what_is_missing_is_sent_after_a_cut(store, s3_proxy, file, content, seed):
    drawing = random.Random(seed)  # noqa: S311
    there = {number: part for number, part in split(content).items() if drawing.random() < 0.6} or {
        1: content[:PART]
    }
    begun(store, there)
    s3_proxy.seen.clear()
    put(file)
    assert stored(store) == content
    assert num_sent(s3_proxy) == NUM_PARTS - len(there)
    assert not list(store.parts())


def test_a_part_with_other_bytes_is_sent_again(store, s3_proxy, file, content):
    parts = split(content)
    damaged = bytes([parts[2][0] ^ 1]) + parts[2][1:]
    begun(store, {**parts, 2: damaged, 5: parts[5][:-1]})
    s3_proxy.seen.clear()
    put(file)
    assert stored(store) == content
    assert num_sent(s3_proxy) == 2


def test_a_lost_response_is_not_a_lost_upload(store, s3_proxy, file, content):
    """The request to complete it is repeated; S3 does not know the upload any more."""
    begun(store, split(content))
    s3_proxy.arm("completed_before", times=1, part="model.pt", methods=("POST",))
    s3_proxy.seen.clear()
    put(file)
    assert s3_proxy.num_failed == 1
    assert stored(store) == content
    assert num_sent(s3_proxy) == 0


def test_parts_of_another_size_are_replaced(store, file, content):
    begun(store, split(content, 5 * 2**20))  # more of them, as another version may have made
    put(file)
    assert stored(store) == content


def test_another_process_continues_an_upload_that_failed(store, s3_proxy, file, content):
    """The first is cut off by the line, finally; the parts that it sent stay."""
    s3_proxy.arm("expired", times=1, part="model.pt", methods=("PUT",))
    with pytest.raises((StorageFailed, ClientError)):
        put(file)
    s3_proxy.disarm()
    (upload,) = store.parts()
    present = store.client.list_parts(Bucket=BUCKET, Key=KEY, UploadId=upload["UploadId"])
    s3_proxy.seen.clear()
    put(file)
    assert stored(store) == content
    assert num_sent(s3_proxy) == NUM_PARTS - len(present.get("Parts", ()))


def test_two_processes_upload_the_same_file_at_once(store, file, content):
    """S3 says that an upload is gone; moto may answer 500, or not in time."""
    errors = []

    def run():
        try:
            put(file)
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert len(errors) < len(threads), errors
    assert stored(store) == content


def test_an_upload_that_was_ended_meanwhile_is_made_anew(
    store, s3_proxy, file, content, monkeypatch
):
    ended = begun(store, {1: content[:PART]})
    store.client.abort_multipart_upload(Bucket=BUCKET, Key=KEY, UploadId=ended)
    monkeypatch.setattr(s3_uploads._Upload, "_begun", lambda self: ended)  # as it was just before
    put(file)
    assert stored(store) == content


def test_an_upload_ends_soon_after_a_stop_and_leaves_the_parts_that_were_sent(
    store, s3_proxy, file
):
    s3_proxy.arm("stall", part="model.pt", methods=("PUT",))
    stop, raised = threading.Event(), []

    def run():
        try:
            put(file, stop)
        except NobodyWaits as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: s3_proxy.num_failed >= 1)
    stop.set()
    thread.join(10)
    assert raised and len(list(store.parts())) == 1
    s3_proxy.disarm()


def test_the_md5_of_each_part_goes_with_it(store, file, content, monkeypatch):
    """So that the server refuses what was changed on its way."""
    sums = {}
    client = remote.bucket().objects.store._client
    send = client.upload_part

    def noted(**given):
        sums[given["PartNumber"]] = given["ContentMD5"]
        return send(**given)

    monkeypatch.setattr(client, "upload_part", noted)
    put(file)
    expected = {
        number: s3_uploads._base64(hashlib.md5(part, usedforsecurity=False).digest())
        for number, part in split(content).items()
    }
    assert sums == expected


@pytest.mark.parametrize("gigabytes", [1, 79, 200, 5000])
def test_a_large_file_has_at_most_ten_thousand_parts(gigabytes, tmp_path):
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(gigabytes * 10**9)
    upload = s3_uploads._Upload(None, BUCKET, KEY, FileContent(path), threading.Event())
    assert -(-upload._num_bytes // upload._part_bytes) <= s3_uploads.MAX_PARTS
