"""Backups in a bucket of a real S3 server: incremental, encrypted, one process at a time."""

import time

import boto3
import pytest

from apps.backups import making, places, restoring, snapshots
from apps.backups.errors import Busy, ForeignPlace, NotABackup
from apps.backups.store import opened
from apps.checkpoints import storage
from apps.checkpoints.models import Checkpoint
from apps.operations.lifecycle import State
from tests.api.saved import saved
from tests.checkpoints.conftest import moto  # noqa: F401 - a fixture
from tests.operations.rows import in_state

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
BUCKET, PREFIX = "backups", "of/tests"


@pytest.fixture
def client(moto, monkeypatch):  # noqa: F811 - the fixture
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{moto}", region_name="us-east-1")
    client.create_bucket(Bucket=BUCKET)
    for each in client.list_objects_v2(Bucket=BUCKET).get("Contents", ()):
        client.delete_object(Bucket=BUCKET, Key=each["Key"])
    return client


@pytest.fixture
def url(client, moto):  # noqa: F811 - the fixture
    address = f"http://127.0.0.1:{moto}"
    return f"s3://{BUCKET}/{PREFIX}?endpoint_url={address}&region_name=us-east-1"


@pytest.fixture
def backups(url, tmp_path):
    key, workspace = tmp_path / "key", tmp_path / "workspace"
    key.write_text("0f" * 32)
    workspace.mkdir()
    return opened(url, key, workspace)


def names(client):
    found = client.list_objects_v2(Bucket=BUCKET).get("Contents", ())
    return {each["Key"]: each["LastModified"] for each in found}


def test_what_a_bucket_has_is_not_uploaded_again_and_all_of_it_is_restored(
    backups, client, monkeypatch
):
    checkpoint = saved(in_state(State.CANCELLED))
    making.make(backups)
    before = names(client)
    time.sleep(1)  # the clock of the server has seconds
    second = making.make(backups)
    after = names(client)
    files = {each for each in before if each.startswith(f"{PREFIX}/files/")}
    assert len(files) == len(second.snapshot.files)
    assert {each: after[each] for each in files} == {each: before[each] for each in files}
    assert not any("/locks/" in each for each in after)
    assert list(snapshots.problems(backups, second.name)) == []
    assert list(backups.workspace.iterdir()) == []

    directory = storage.directory(checkpoint.artifacts_path)
    expected = {each.name: each.read_bytes() for each in directory.iterdir()}
    storage.remove(checkpoint.artifacts_path)
    restored_from = []
    monkeypatch.setattr(restoring.database, "require_empty", lambda: None)
    monkeypatch.setattr(
        restoring.database, "restore",
        lambda path, engine: restored_from.append(path.read_bytes()[:15]),
    )  # fmt: skip
    restoring.restore(backups, second.name)
    assert {each.name: each.read_bytes() for each in directory.iterdir()} == expected
    assert restored_from == [b"SQLite format 3"]


def test_a_damaged_bucket_is_refused_before_the_database_is_filled(backups, client, monkeypatch):
    checkpoint = saved(in_state(State.CANCELLED))
    name = making.make(backups).name
    key = f"{PREFIX}/{backups.name_of(checkpoint.manifest_digest)}"
    content = bytearray(client.get_object(Bucket=BUCKET, Key=key)["Body"].read())
    content[-1] ^= 1
    monkeypatch.setattr(restoring.database, "require_empty", lambda: None)
    monkeypatch.setattr(restoring.database, "restore", None)
    for damage, problem in (
        (bytes(content), "was altered"),
        (b"", "was altered"),
        (None, "missing"),
    ):
        if damage is None:
            client.delete_object(Bucket=BUCKET, Key=key)
        else:
            client.put_object(Bucket=BUCKET, Key=key, Body=damage)
        with pytest.raises(NotABackup, match=problem):
            restoring.restore(backups, name)


def test_old_backups_are_removed_from_a_bucket_with_their_files(backups, client):
    saved(in_state(State.CANCELLED))
    making.make(backups)
    Checkpoint.objects.all().delete()
    name = making.make(backups, keep=1).name
    assert snapshots.newest_first(backups) == [name]
    assert not any("/files/" in each for each in names(client))


def test_objects_of_others_stay_and_a_prefix_that_has_only_those_is_refused(backups, client):
    others = ("snapshots/monday/db.dump", "files/photo.jpg", "locks/door")
    for name in others:
        client.put_object(Bucket=BUCKET, Key=f"{PREFIX}/{name}", Body=b"of others")
    with pytest.raises(ForeignPlace, match="has no backup, but other files"):
        making.make(backups)
    for name in others:
        client.delete_object(Bucket=BUCKET, Key=f"{PREFIX}/{name}")
    making.make(backups)
    for name in others:
        client.put_object(Bucket=BUCKET, Key=f"{PREFIX}/{name}", Body=b"of others")
    making.make(backups, keep=1)
    assert {f"{PREFIX}/{name}" for name in others} <= set(names(client))


def test_only_one_process_writes_into_a_bucket_until_its_lock_is_stale(
    backups, client, monkeypatch
):
    making.make(backups)
    with backups.lock() as require_held:
        require_held()
        with pytest.raises(
            Busy, match="Another backup is being written into s3://backups/of/tests"
        ):
            making.make(backups)
        time.sleep(1)
        monkeypatch.setattr(places, "STALE_SECONDS", 1.0)
        making.make(backups)
        with pytest.raises(Busy, match="another one has been started"):
            require_held()


def test_a_lock_is_renewed_while_its_process_runs(backups, client, monkeypatch):
    monkeypatch.setattr(places, "RENEWED_SECONDS", 0.1)
    with backups.lock():
        (first,) = names(client).values()
        time.sleep(1.5)
        (renewed,) = names(client).values()
    assert renewed > first and names(client) == {}


def test_a_url_that_is_none_is_refused_with_what_is_allowed(tmp_path):
    with pytest.raises(NotABackup, match=r"s4:// is not known; allowed: "):
        opened("s4://bucket/prefix", None, tmp_path)


def test_a_bucket_that_does_not_exist_is_no_backup(url, tmp_path):
    with pytest.raises(OSError, match="NoSuchBucket"):
        opened(url.replace(BUCKET, "others"), None, tmp_path)
