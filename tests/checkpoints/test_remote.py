"""Checkpoints in a bucket: one at a time, by the calls that everything else is made of."""

import threading
import time
import tracemalloc

import httpx
import pytest
from blake3 import blake3
from django.core.files.storage import storages

from apps.checkpoints import cleaning, copies, integrity, remote, services, signatures, storage
from apps.checkpoints.encrypted_objects import EncryptedObjects
from apps.checkpoints.models import Checkpoint
from apps.checkpoints.objects import StorageObjects
from apps.checkpoints.removals import REMOVALS
from apps.checkpoints.trying import NobodyWaits, RetryPolicy, StorageFailed
from apps.operations.errors import NotAllowed
from apps.operations.files import artifacts
from apps.operations.lifecycle import State
from apps.operations.scheduling import readiness
from tests.api.conftest import signed_in
from tests.api.saved import saved
from tests.checkpoints.conftest import BUCKET
from tests.operations import rows
from tests.waiting import wait_until
from trainops.runtime import lossless
from trainops.runtime.checkpoint.manifest import read_manifest
from trainops.runtime.errors import CheckpointCorrupted

pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.django_db(transaction=True)]
LARGE = bytes(range(256)) * 4096 * 9  # 9 MiB: two parts


def uploaded(operation, **given):
    """A checkpoint with a row and its objects, as after a save."""
    checkpoint = saved(operation, **given)
    upload(checkpoint.artifacts_path)
    return checkpoint


def upload(artifacts_path):
    remote.bucket().upload(artifacts_path, threading.Event())


def download(checkpoint):
    copies.make_local(checkpoint.artifacts_path, checkpoint.manifest_digest, threading.Event())
    return storage.directory(checkpoint.artifacts_path)


def staged(operation, content=LARGE, step=10):
    """A directory that was staged and has no row."""
    path = storage.operation_directory(operation.pk) / f"a0001-s{step:010d}-periodic"
    path.mkdir(parents=True)
    files = {"state.json": b"{}", "model.pt": content}
    artifacts = []
    for name, each in files.items():
        (path / name).write_bytes(each)
        artifacts.append(
            {"name": name, "size_bytes": len(each), "blake3": blake3(each).hexdigest()}
        )
    manifest = {
        "format": "trainops", "version": 1, "type": "periodic", "step": step, "created_at": "",
        "environment": {}, "metric": None, "artifacts": artifacts,
    }  # fmt: skip
    (path / "manifest.json").write_text(lossless.dumps(manifest))
    return f"{operation.pk}/{path.name}", blake3((path / "manifest.json").read_bytes()).hexdigest()


def test_what_is_uploaded_is_downloaded_on_another_machine(store, machine):
    checkpoint = uploaded(rows.submitted())
    here = storage.directory(checkpoint.artifacts_path)
    before = {path.name: path.read_bytes() for path in here.iterdir()}
    machine("second")
    there = download(checkpoint)
    assert here != there
    assert {path.name: path.read_bytes() for path in there.iterdir()} == before
    assert not list(storage.drafts())


def test_a_large_object_in_the_place_of_a_small_file_is_not_read(store, machine):
    checkpoint = uploaded(rows.submitted())
    path, digest = checkpoint.artifacts_path, checkpoint.manifest_digest
    machine("second")
    for name in ("manifest.json", "signature.json"):
        store.client.put_object(Bucket=BUCKET, Key=store.key(checkpoint, name), Body=LARGE)
    tracemalloc.start()
    try:
        assert signatures.read(path) == "unreadable"
        with pytest.raises(CheckpointCorrupted, match="has 9,437,184 bytes; allowed: 4,194,304"):
            integrity.committed_manifest(path, digest)
        with pytest.raises(CheckpointCorrupted, match="has 9,437,184 bytes; allowed: 4,194,304"):
            copies.make_local(path, digest, threading.Event())
        assert tracemalloc.get_traced_memory()[1] < len(LARGE) / 2
    finally:
        tracemalloc.stop()
    assert not list(storage.drafts())


def test_a_file_that_is_larger_than_its_manifest_says_is_not_downloaded(store, s3_proxy, machine):
    checkpoint = uploaded(rows.submitted())
    machine("second")
    store.client.put_object(Bucket=BUCKET, Key=store.key(checkpoint), Body=LARGE)
    s3_proxy.seen.clear()
    with pytest.raises(CheckpointCorrupted) as refused:
        download(checkpoint)
    assert refused.value.altered == ["model.pt"]
    assert not [path for method, path in s3_proxy.seen if method == "GET" and "model.pt" in path]


def test_the_manifest_goes_last(store, s3_proxy):
    uploaded(rows.submitted())
    sent = [
        path.rpartition("/")[2]
        for method, path in s3_proxy.seen
        if method == "PUT" and "/op_" in path
    ]
    assert (sorted(sent), sent[-1]) == (["manifest.json", "model.pt", "state.json"], sent[-1])
    assert sent[-1] == "manifest.json"


@pytest.mark.parametrize("fault", ["500", "slow_down", "cut_upload", "stall"])
def test_an_upload_survives_what_passes(store, s3_proxy, machine, fault):
    operation = rows.submitted()
    path, digest = staged(operation)
    s3_proxy.arm(fault, 2, part="model.pt")
    upload(path)
    assert s3_proxy.num_failed == 2
    machine("second")
    copies.make_local(path, digest, threading.Event())
    assert (storage.directory(path) / "model.pt").read_bytes() == LARGE


@pytest.mark.parametrize("fault", ["500", "slow_down", "cut_download", "stall"])
def test_a_download_survives_what_passes(store, s3_proxy, machine, fault):
    path, digest = staged(rows.submitted())
    upload(path)
    machine("second")
    s3_proxy.arm(fault, 2, methods=("GET", "HEAD"), part="model.pt")
    copies.make_local(path, digest, threading.Event())
    assert s3_proxy.num_failed == 2
    assert (storage.directory(path) / "model.pt").read_bytes() == LARGE


def test_credentials_that_expired_are_not_tried_again_and_said(store, s3_proxy):
    path, _ = staged(rows.submitted(), b"x" * 100)
    s3_proxy.arm("expired")
    with pytest.raises(StorageFailed, match="ExpiredToken: The provided token has expired"):
        upload(path)
    assert s3_proxy.num_failed == 1


def test_a_bucket_that_is_gone_is_not_taken_for_files_that_are_gone(store, machine):
    checkpoint = uploaded(rows.submitted())
    store.empty()
    store.client.delete_bucket(Bucket="kept")
    machine("second")
    with pytest.raises(StorageFailed, match="NoSuchBucket"):
        download(checkpoint)
    assert not services.Checkpoint.objects.exclude(health="healthy").exists()


def test_a_cut_upload_leaves_nothing_that_counts_and_the_sweep_removes_it(
    store, s3_proxy, settings, monkeypatch
):
    """Also its parts: they lie there without a name and are paid for."""
    operation = rows.in_state(State.CANCELLED)
    path, digest = staged(operation)
    s3_proxy.arm("500", part="manifest.json")
    with pytest.raises(StorageFailed, match="InternalError"):
        upload(path)
    s3_proxy.disarm()
    store.client.create_multipart_upload(Bucket="kept", Key=f"of/tests/{path}/optimizer.pt")
    assert len(store.names()) == 2  # not its manifest
    with pytest.raises(CheckpointCorrupted, match=r"missing: manifest\.json"):
        remote.bucket().download(path, digest, threading.Event())

    assert cleaning.sweep_unowned().num_unowned == 0  # too young
    later = time.time() + settings.THRESHOLDS.unowned_file_age_seconds + 60
    monkeypatch.setattr(cleaning.time, "time", lambda: later)
    assert cleaning.sweep_unowned(dry_run=True).num_unowned == 2  # here and in the bucket
    assert len(store.names()) == 2
    cleaning.sweep_unowned()
    assert (store.names(), list(store.parts())) == ([], [])


def test_the_sweep_leaves_what_is_owned_and_what_may_be_at_work(store, settings, monkeypatch):
    owned = uploaded(rows.in_state(State.CANCELLED))
    working = rows.claimed()
    path, _ = staged(working, b"x" * 10)
    upload(path)
    later = time.time() + settings.THRESHOLDS.unowned_file_age_seconds + 60
    monkeypatch.setattr(cleaning.time, "time", lambda: later)
    assert cleaning.sweep_unowned().num_unowned == 0
    assert len(store.of(owned)) == 3
    assert len(store.names(f"of/tests/{path}/")) == 3


def test_an_upload_that_no_thread_waits_for_ends(store, s3_proxy, monkeypatch):
    path, _ = staged(rows.submitted())
    stop, raised = threading.Event(), []
    s3_proxy.arm("slow_down")

    def run():
        try:
            remote.bucket().upload(path, stop)
        except NobodyWaits as error:
            raised.append(error)

    monkeypatch.setattr(remote, "BACKGROUND", RetryPolicy(tries=1000, first_seconds=60))
    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: s3_proxy.num_failed >= 3)
    stop.set()
    thread.join(10)
    assert raised


def test_a_copy_that_went_bad_here_is_fetched_again(store):
    checkpoint = uploaded(rows.submitted())
    model = storage.directory(checkpoint.artifacts_path) / "model.pt"
    content = model.read_bytes()
    model.write_bytes(content[:-1] + b"?")
    assert (download(checkpoint) / "model.pt").read_bytes() == content


def test_a_verification_reads_the_bucket_and_not_the_copy(store):
    checkpoint = uploaded(rows.submitted())
    assert integrity.check(checkpoint) is None
    store.damage(checkpoint)
    store.lose(checkpoint, "state.json")
    problem = integrity.check(checkpoint)
    assert (problem.altered, problem.missing) == (["model.pt"], ["state.json"])
    checkpoint.refresh_from_db()
    assert checkpoint.health == "corrupted"
    assert checkpoint.problem.startswith(f"checkpoint {checkpoint.artifacts_path.split('/')[1]} is")


@pytest.mark.parametrize(("harm", "found"), [("lose", "missing"), ("cut", "altered")])
def test_who_resumes_hears_at_once_what_is_not_there_any_more(store, s3_proxy, harm, found):
    checkpoint = uploaded(rows.submitted())
    s3_proxy.seen.clear()
    assert integrity.glance(checkpoint) is None
    assert len(s3_proxy.seen) == 2  # the identity, and a list: it reads no checkpoint
    if harm == "lose":
        store.lose(checkpoint)
    else:
        store.client.put_object(Bucket="kept", Key=store.key(checkpoint), Body=b"short")
    assert getattr(integrity.glance(checkpoint), found) == ["model.pt"]
    checkpoint.refresh_from_db()
    assert checkpoint.health == {"missing": "unavailable", "altered": "corrupted"}[found]


def test_deletion_and_retention_remove_the_objects(store):
    operation = rows.submitted()
    kept = [uploaded(operation, step=step) for step in (10, 20, 30)]
    services.retain(operation.pk, keep_last=2, keep_best=0, better="min")
    wait_until(lambda: not store.of(kept[0]))
    assert len(store.of(kept[1])) == 3
    services.delete(Checkpoint.objects.all())
    wait_until(lambda: not store.names())


def test_what_could_not_be_removed_the_sweep_removes(store, s3_proxy, settings, monkeypatch):
    checkpoint = uploaded(rows.in_state(State.CANCELLED))
    s3_proxy.arm("expired", methods=("DELETE",))
    services.delete(Checkpoint.objects.all())
    wait_until(lambda: s3_proxy.num_failed)
    REMOVALS.join()
    assert len(store.of(checkpoint)) == 3
    s3_proxy.disarm()
    later = time.time() + settings.THRESHOLDS.unowned_file_age_seconds + 60
    monkeypatch.setattr(cleaning.time, "time", lambda: later)
    cleaning.sweep_unowned()
    assert not store.of(checkpoint)


def limit(settings, num_bytes):
    settings.THRESHOLDS = settings.THRESHOLDS.model_copy(
        update={"checkpoint_cache_bytes": num_bytes}
    )


def test_copies_stay_bounded_and_the_one_unused_for_longest_goes_first(store, settings):
    operation = rows.in_state(State.CANCELLED)
    first, second, third = (uploaded(operation, step=step) for step in (10, 20, 30))
    size = sum(each.size_bytes for each in storage.stored()) // 3
    time.sleep(0.02)  # the clock of files is coarse
    download(first)  # it is used
    limit(settings, 2 * size + 10)
    assert copies.forget_some() == 1
    assert not storage.directory(second.artifacts_path).exists()
    assert copies.forget_some(room_bytes=size) == 1
    assert not storage.directory(third.artifacts_path).exists()
    assert storage.directory(first.artifacts_path).exists()
    assert len(store.of(second)) == 3
    download(second)
    assert storage.directory(second.artifacts_path).exists()


def test_a_copy_in_use_and_what_is_only_staged_stay(store, settings):
    running = rows.claimed()
    start = uploaded(running, step=20)
    older = uploaded(running, step=10)
    path, _ = staged(rows.in_state(State.CANCELLED), b"x" * 10)
    limit(settings, 1)
    assert copies.forget_some() == 1
    assert not storage.directory(older.artifacts_path).exists()
    assert storage.directory(start.artifacts_path).exists()
    assert storage.directory(path).exists()


def test_a_person_is_led_to_the_bucket_and_gets_the_bytes(store):
    operation = rows.submitted()
    checkpoint = uploaded(operation)
    client = signed_in("vera", "viewer").client
    content = (storage.directory(checkpoint.artifacts_path) / "model.pt").read_bytes()
    path = f"/api/v1/operations/{operation.pk}/artifacts/model.pt"
    for address in (path, f"/operations/{operation.pk}/files/{checkpoint.pk}/model.pt"):
        answer = client.get(address)
        assert answer.status_code == 302, address
        served = httpx.get(answer["Location"])
        assert served.content == content
        assert f"{operation.pk}-step10-model.pt" in served.headers["Content-Disposition"]
        assert "X-Amz-Expires=3600" in answer["Location"]


def test_a_link_to_a_file_that_is_gone_is_not_given(store):
    checkpoint = uploaded(rows.submitted())
    store.lose(checkpoint)
    with pytest.raises(NotAllowed):
        artifacts.link(checkpoint, "model.pt")
    checkpoint.refresh_from_db()
    assert checkpoint.health == "unavailable"


@pytest.fixture(params=[(), (b"k" * 32,)], ids=["plain", "encrypted"])
def plain(store, settings, request):
    """What serves Google and Azure, before a server that is here: without boto3's transfers."""
    storage = storages.create_storage(settings.CHECKPOINT_BUCKET.backend())
    return remote.Remote(EncryptedObjects(StorageObjects(storage), request.param))


def test_the_plain_way_through_django_storages_does_the_same(plain, store, machine):
    operation = rows.submitted()
    path, digest = staged(operation)
    plain.upload(path, threading.Event())
    (found,) = plain.stored()
    sizes = [each.stat().st_size for each in storage.directory(path).iterdir()]
    assert (found.artifacts_path, found.size_bytes) == (path, sum(sizes))
    assert len(store.names()) == 3
    machine("second")
    plain.download(path, digest, threading.Event())
    assert (storage.directory(path) / "model.pt").read_bytes() == LARGE
    plain.verify(path, digest)
    artifact = read_manifest(storage.directory(path)).artifacts[1]
    with plain.opened(path, artifact) as file:
        assert file.read() == LARGE
    link = plain.link(path, artifact, "name")
    if link is None:
        assert all(".key-" in name for name in store.names())
    else:
        assert httpx.get(link).content == LARGE
    plain.remove(plain.stored()[0].names)
    assert not store.names()


def test_the_plain_way_tells_a_bucket_that_is_gone_from_a_file_that_is(plain, store, machine):
    path, digest = staged(rows.submitted(), b"x" * 10)
    plain.upload(path, threading.Event())
    (key,) = store.names(f"of/tests/{path}/model.pt")
    store.client.delete_object(Bucket="kept", Key=key)
    with pytest.raises(CheckpointCorrupted, match=r"missing: model\.pt"):
        plain.verify(path, digest)
    store.empty()
    store.client.delete_bucket(Bucket="kept")
    with pytest.raises(StorageFailed, match="NoSuchBucket"):
        plain.verify(path, digest)


def test_whether_the_bucket_can_be_written_and_read_is_reported(store, s3_proxy):
    expected = readiness._expected_storage()
    assert readiness._storage(expected) == ""
    assert store.names("") == ["of/tests/.trainops/trainops-storage.json"]
    s3_proxy.arm("expired")
    assert "ExpiredToken" in readiness._storage(expected)
    s3_proxy.disarm()
    store.empty()
    store.client.delete_bucket(Bucket="kept")
    assert "NoSuchBucket" in readiness._storage(expected)
