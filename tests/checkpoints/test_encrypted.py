"""Checkpoints in a bucket that are encrypted: who reads it learns nothing, and changes are seen."""

import threading
from functools import partial

import pytest
from botocore.exceptions import ClientError

from apps.checkpoints import copies, integrity, place, remote, s3_uploads, services, storage
from apps.checkpoints.encrypted_objects import MARK
from apps.checkpoints.models import Checkpoint
from apps.checkpoints.removals import REMOVALS
from apps.checkpoints.trying import StorageFailed
from apps.operations.files import artifacts
from apps.operations.scheduling import readiness
from tests.api.conftest import signed_in
from tests.checkpoints.conftest import BUCKET, PREFIX
from tests.checkpoints.test_remote import LARGE, staged, upload, uploaded
from tests.operations import rows
from trainops.encrypted_files import FileKey, stored_bytes
from trainops.key_files import read_secrets
from trainops.runtime.errors import CheckpointCorrupted

pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.django_db(transaction=True)]
FIRST, SECOND = b"1" * 32, b"2" * 32
PLACE = f"{PREFIX}/{place.OBJECT}"
NAME = "op_training_20260101_000000_aaaaaa/a0001-s0000000010-periodic/model.pt"


def id_of(secret):
    return FileKey(secret, "checkpoints").id


@pytest.fixture(autouse=True)
def keys(store, settings):
    """Set the keys of this installation; the first one is set already."""

    def change(*secrets):
        settings.CHECKPOINT_SECRET_KEYS = secrets

    change(FIRST)
    return change


def contents(store, prefix=f"{PREFIX}/op_"):
    return {
        name: store.client.get_object(Bucket=BUCKET, Key=name)["Body"].read()
        for name in store.names(prefix)
    }


def downloaded(checkpoint, go, name="another"):
    """Return the files of a checkpoint as a new machine has them."""
    go(name)
    copies.make_local(checkpoint.artifacts_path, checkpoint.manifest_digest, threading.Event())
    return files_of(checkpoint.artifacts_path)


def files_of(artifacts_path):
    return {each.name: each.read_bytes() for each in storage.directory(artifacts_path).iterdir()}


def test_the_bucket_reveals_no_content_and_another_machine_reads_all(store, machine):
    path, digest = staged(rows.submitted())
    upload(path)
    before, stored = files_of(path), contents(store)
    names = {name.rpartition("/")[2] for name in stored}
    assert names == {f"{name}{MARK}{id_of(FIRST)}" for name in before}
    for found in stored.values():
        assert not any(content[:32] in found for content in before.values() if len(content) > 32)
    machine("another")
    remote.bucket().download(path, digest, threading.Event())
    assert files_of(path) == before


def test_a_key_file_with_the_same_key_twice_has_one_key(store, keys, tmp_path):
    file = tmp_path / "keys"
    file.write_text(f"{FIRST.hex()}\n{SECOND.hex()}\n{FIRST.hex()}\n")
    assert read_secrets(file) == (FIRST, SECOND)


def test_an_upload_with_the_same_key_twice_stays(store, keys):
    keys(FIRST, FIRST)
    checkpoint = uploaded(rows.submitted())
    assert integrity.check(checkpoint) is None
    assert all(name.endswith(f"{MARK}{id_of(FIRST)}") for name in store.of(checkpoint))


def test_equal_files_of_two_names_are_stored_as_different_ones(store):
    path, _ = staged(rows.submitted(), content=b"{}")
    upload(path)
    stored = [each for name, each in contents(store).items() if "manifest" not in name]
    assert len(stored) == 2 and stored[0] != stored[1]


@pytest.mark.parametrize("how", ["flipped", "cut", "empty", "exchanged", "not encrypted"])
def test_what_was_changed_in_the_bucket_is_altered(store, machine, how):
    checkpoint = uploaded(rows.submitted())
    mine = f"{store.key(checkpoint)}{MARK}{id_of(FIRST)}"
    other = f"{store.key(checkpoint, 'state.json')}{MARK}{id_of(FIRST)}"
    found = contents(store)
    flipped = bytearray(found[mine])
    flipped[-20] ^= 1
    changed = {
        "flipped": bytes(flipped), "cut": found[mine][:-1], "empty": b"",
        "exchanged": found[other], "not encrypted": b"parameters",
    }  # fmt: skip
    store.client.put_object(Bucket=BUCKET, Key=mine, Body=changed[how])
    with pytest.raises(CheckpointCorrupted) as refusal:
        downloaded(checkpoint, machine)
    assert refusal.value.altered == ["model.pt"] and refusal.value.missing == []
    with pytest.raises(CheckpointCorrupted):
        remote.bucket().verify(checkpoint.artifacts_path, checkpoint.manifest_digest)


def test_a_file_that_is_gone_is_missing(store, machine):
    checkpoint = uploaded(rows.submitted())
    store.client.delete_object(Bucket=BUCKET, Key=f"{store.key(checkpoint)}{MARK}{id_of(FIRST)}")
    with pytest.raises(CheckpointCorrupted) as refusal:
        downloaded(checkpoint, machine)
    assert refusal.value.missing == ["model.pt"]


@pytest.mark.parametrize(("secrets", "named"), [((), "none"), ((SECOND,), id_of(SECOND))])
def test_without_the_key_nothing_is_marked_and_nothing_is_used(
    store, machine, keys, secrets, named
):
    checkpoint = uploaded(rows.submitted())
    place.require()
    keys(*secrets)
    machine("another")
    problem = f"is encrypted with the key {id_of(FIRST)}; .*: {named}$"
    with pytest.raises(StorageFailed, match=problem):
        copies.make_local(checkpoint.artifacts_path, checkpoint.manifest_digest, threading.Event())
    with pytest.raises(StorageFailed, match=problem):
        place.here().read_id()
    with pytest.raises(StorageFailed, match=problem):
        integrity.check(checkpoint)
    checkpoint.refresh_from_db()
    assert checkpoint.health == Checkpoint.Health.HEALTHY


def test_what_was_stored_before_the_key_is_read_and_the_identity_encrypted(store, machine, keys):
    keys()
    storage_id = place.require()
    checkpoint = uploaded(rows.submitted())
    before = files_of(checkpoint.artifacts_path)
    assert PLACE in store.names(PREFIX)
    keys(FIRST)
    assert downloaded(checkpoint, machine) == before
    assert place.here().read_id() == place.here().read_id() == storage_id
    names = store.names(PREFIX)
    assert PLACE not in names and f"{PLACE}{MARK}{id_of(FIRST)}" in names
    keys()
    with pytest.raises(StorageFailed, match="is encrypted"):
        place.here().read_id()  # a process without the key would store the next in the clear


def test_a_second_key_is_used_for_what_is_new_and_the_first_still_read(store, machine, keys):
    storage_id = place.require()
    old = uploaded(rows.submitted())
    before = files_of(old.artifacts_path)
    keys(SECOND, FIRST)
    new = uploaded(rows.submitted())
    assert all(name.endswith(id_of(SECOND)) for name in store.of(new))
    assert downloaded(old, machine) == before
    assert place.here().read_id() == storage_id
    keys(SECOND)
    assert place.here().read_id() == storage_id
    with pytest.raises(StorageFailed, match=f"with the key {id_of(FIRST)}"):
        integrity.check(old)


def test_processes_are_restarted_with_a_new_key_one_after_another(store, machine, keys):
    """First the new key is the second one everywhere, then the first one."""
    storage_id = place.require()
    old = uploaded(rows.submitted())
    before = files_of(old.artifacts_path)
    for secrets in ((FIRST, SECOND), (FIRST,), (SECOND, FIRST), (FIRST, SECOND), (SECOND,)):
        keys(*secrets)
        assert place.here().read_id() == storage_id
    keys(SECOND, FIRST)
    new = uploaded(rows.submitted())
    expected = files_of(new.artifacts_path)
    keys(FIRST, SECOND)
    assert downloaded(new, machine) == expected
    assert downloaded(old, machine, "a third") == before


def test_what_a_lost_key_encrypted_is_deleted(store, keys, machine):
    keys(FIRST, SECOND)
    place.require()
    checkpoint = uploaded(rows.submitted())
    keys(SECOND)
    services.delete(Checkpoint.objects.filter(pk=checkpoint.pk))
    REMOVALS.join()
    assert store.of(checkpoint) == []
    unowned = uploaded(rows.submitted())
    keys(FIRST, SECOND)
    Checkpoint.objects.filter(pk=unowned.pk).delete()
    (found,) = remote.bucket().stored()
    keys(FIRST)
    remote.bucket().remove(found.names)
    assert store.names() == []


def test_a_download_comes_verified_from_the_server(store, machine):
    checkpoint = uploaded(rows.submitted())
    before = files_of(checkpoint.artifacts_path)
    machine("another")
    client = signed_in("vera", "viewer").client
    path = f"/api/v1/operations/{checkpoint.operation_id}/artifacts/model.pt"
    for address in (path, f"/operations/{checkpoint.operation_id}/files/{checkpoint.pk}/model.pt"):
        response = client.get(address)
        assert response.status_code == 200 and b"".join(response) == before["model.pt"]
    assert not list(storage.drafts())
    mine = f"{store.key(checkpoint)}{MARK}{id_of(FIRST)}"
    store.client.put_object(Bucket=BUCKET, Key=mine, Body=b"else")
    response = client.get(path)
    assert response.json()["error"]["details"]["altered_artifacts"] == ["model.pt"]
    checkpoint.refresh_from_db()
    assert checkpoint.health == Checkpoint.Health.CORRUPTED


def test_a_download_of_what_is_not_encrypted_still_leads_to_the_bucket(keys, store):
    keys()
    checkpoint = uploaded(rows.submitted())
    keys(FIRST)
    link = artifacts.link(checkpoint, "model.pt")
    assert link is not None and MARK not in link


def test_an_interrupted_upload_is_continued(store, s3_proxy, tmp_path):
    path, target = tmp_path / "model.pt", tmp_path / "back"
    path.write_bytes(LARGE * 4)
    put = partial(remote.bucket().objects.put, path, NAME, threading.Event())
    s3_proxy.arm("expired", times=1, part="model.pt", methods=("PUT",))
    with pytest.raises((StorageFailed, ClientError)):
        put()
    s3_proxy.disarm()
    (begun,) = store.parts()
    present = store.client.list_parts(Bucket=BUCKET, Key=begun["Key"], UploadId=begun["UploadId"])
    s3_proxy.seen.clear()
    put()
    num_parts = -(-stored_bytes(len(LARGE) * 4) // s3_uploads.PART_BYTES)
    num_sent = sum(method == "PUT" for method, _ in s3_proxy.seen)
    assert 0 < num_sent == num_parts - len(present.get("Parts", ())) < num_parts
    remote.bucket().objects.get(NAME, target, threading.Event())
    assert target.read_bytes() == LARGE * 4


def test_what_is_counted_looked_at_and_removed_is_as_without_keys(store):
    checkpoint = uploaded(rows.submitted())
    (found,) = remote.bucket().stored()
    own = files_of(checkpoint.artifacts_path)
    assert found.size_bytes == sum(map(len, own.values())) and found.is_whole
    assert {each.rpartition("/")[2] for each in found.names} == own.keys()
    assert integrity.glance(checkpoint) is None
    remote.bucket().remove(found.names)
    assert store.names() == []


def test_whether_the_bucket_can_be_written_and_read_is_reported(store, keys):
    expected = readiness._expected_storage()
    assert readiness._storage(expected) == ""
    assert store.names("") == [f"{PLACE}{MARK}{id_of(FIRST)}"]
    keys()
    assert f"is encrypted with the key {id_of(FIRST)}" in readiness._storage(expected)
