"""Files that several checkpoints have: counted once, and there until the last of them goes."""

import random
import threading

import pytest
import torch

from apps.checkpoints import cleaning, copies, integrity, remote, services, sharing, storage
from apps.checkpoints.models import Checkpoint
from apps.checkpoints.removals import REMOVALS
from apps.dashboard.formatting import size
from apps.operations.lifecycle import State
from tests.engines.incremental import Run, grown
from tests.operations import rows
from trainops.runtime.checkpoint.manifest import staged, verify
from trainops.runtime.errors import CheckpointCorrupted

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]
SHARED = 300 * 300 * 4  # bytes of the model that stays, without the archive around it


class Saves:
    """An operation whose checkpoints are written, uploaded and committed as an attempt does."""

    def __init__(self, operation=None, attempt=1):
        self.operation = operation or rows.submitted()
        self.attempt = attempt
        self.run = Run(storage.operation_directory(self.operation.pk), attempt)
        self.state = grown()

    def stage(self):
        self.state["model"]["weight"].add_(1)
        self.state["equity"].append({"equity": torch.rand(50).double()})
        return self.run.save(self.state)

    def commit(self, checkpoint):
        if (bucket := remote.bucket()) is not None:
            bucket.upload(f"{self.operation.pk}/{checkpoint.path.name}", threading.Event())
        return services.commit(
            operation_id=self.operation.pk, attempt=self.attempt, staged=staged(checkpoint)
        )

    def save(self):
        return self.commit(self.stage())


@pytest.fixture(autouse=True)
def _storage_of_its_own(settings, tmp_path):
    settings.CHECKPOINT_ROOT = tmp_path / "checkpoints"


@pytest.fixture
def saves():
    return Saves()


def delete(*checkpoints):
    freed = services.delete(Checkpoint.objects.filter(pk__in=[each.pk for each in checkpoints]))
    REMOVALS.join()
    return freed


def bytes_on_disk(operation):
    files = storage.operation_directory(operation.pk).glob("a*/*[!n]")  # but the manifests
    return sum({f.stat().st_ino: f.stat().st_size for f in files if f.suffix != ".json"}.values())


def require_whole(checkpoint):
    verify(storage.directory(checkpoint.artifacts_path), checkpoint.manifest_digest)


def test_each_file_is_counted_once_and_the_sum_is_what_the_disk_holds(saves):
    first, second, third = saves.save(), saves.save(), saves.save()
    assert first.counted_size_bytes == first.artifacts_size_bytes > 2 * SHARED
    assert second.counted_size_bytes < second.artifacts_size_bytes - SHARED
    total = services.total_bytes(Checkpoint.objects.all())
    states = sum(each.state_size_bytes for each in (first, second, third))
    assert total == bytes_on_disk(saves.operation) + states
    on_disk = sum(each.size_bytes for each in storage.stored())
    manifests = storage.operation_directory(saves.operation.pk).glob("a*/manifest.json")
    assert abs(on_disk - total - sum(path.stat().st_size for path in manifests)) < 200


def test_deleting_frees_what_no_other_has_and_what_stays_is_counted_with_the_next_one(saves):
    first, second = saves.save(), saves.save()
    would = sharing.freed_bytes(Checkpoint.objects.filter(pk=first.pk))
    assert delete(first).freed_bytes == would < first.artifacts_size_bytes - SHARED
    require_whole(second)
    second.refresh_from_db()
    assert second.counted_size_bytes == second.artifacts_size_bytes
    assert delete(second).freed_bytes == second.artifacts_size_bytes
    assert not storage.operation_directory(saves.operation.pk).exists()


@pytest.mark.slow
def test_whatever_goes_the_rest_is_whole_and_the_counts_are_true(saves):
    kept, chance = [], random.Random(7)  # noqa: S311
    for _ in range(25):
        kept.append(saves.save())
        if len(kept) > 3:
            before = services.total_bytes(Checkpoint.objects.all())
            freed = delete(kept.pop(chance.randrange(len(kept)))).freed_bytes
            assert services.total_bytes(Checkpoint.objects.all()) == before - freed
    for each in kept:
        require_whole(each)
    assert services.total_bytes(Checkpoint.objects.all()) == bytes_on_disk(saves.operation) + sum(
        each.state_size_bytes for each in kept
    )


def test_a_dry_run_says_what_a_clean_up_would_free(saves):
    first, second = saves.save(), saves.save()
    services.pin(second.pk, pinned=True)
    saves.operation.row.update(state=State.CANCELLED)
    preview = cleaning.clean_up(actor="test", older_than_days=-1, dry_run=True)
    assert (preview.num_checkpoints, Checkpoint.objects.count()) == (1, 2)
    assert cleaning.clean_up(actor="test", older_than_days=-1).freed_bytes == preview.freed_bytes
    assert preview.freed_bytes < first.artifacts_size_bytes - SHARED
    require_whole(second)


def test_the_dialog_says_what_deleting_really_frees(saves, admin_client):
    first = saves.save()
    saves.save()
    freed = sharing.freed_bytes(Checkpoint.objects.filter(pk=first.pk))
    page = admin_client.get(f"/checkpoints/{first.pk}/confirm-delete").content.decode()
    assert f"Frees {size(freed)}" in page
    assert size(freed) != size(first.artifacts_size_bytes)


@pytest.mark.slow
@pytest.mark.faults
class TestInABucket:
    def test_what_is_shared_is_uploaded_once(self, store, s3_proxy, saves):
        first = saves.save()
        s3_proxy.seen.clear()
        second = saves.save()
        sent = {path.rpartition("/")[2] for method, path in s3_proxy.seen if method == "PUT"}
        assert sent == {
            "equity-3x1.pt", "equity-tail.pt", "manifest.json", "model.pt", "state.json",
        }  # fmt: skip
        assert sum(name.endswith("best_model.pt") for name in store.names()) == 1
        assert integrity.glance(first) is None and integrity.check(second) is None

    def test_another_machine_gets_it_whole_although_its_first_owner_was_deleted(
        self, store, saves, machine
    ):
        first, second = saves.save(), saves.save()
        delete(first)
        names = [name.rpartition("/")[2] for name in store.of(first)]
        assert "best_model.pt" in names
        assert not {"manifest.json", "model.pt", "state.json"} & set(names)
        machine("second")
        copies.make_local(second.artifacts_path, second.manifest_digest, threading.Event())
        require_whole(second)
        assert integrity.glance(second) is None and integrity.check(second) is None
        restored = Saves(saves.operation, attempt=2).run.restore(
            verify(storage.directory(second.artifacts_path))
        )
        assert restored["equity"].column("equity")[199] == 199
        delete(second)
        assert store.names() == []

    def test_the_sweep_spares_what_others_have_and_takes_the_rest(
        self, store, saves, settings, monkeypatch
    ):
        first, second = saves.save(), saves.save()
        monkeypatch.setattr(remote.Remote, "remove_later", lambda *_: None)
        delete(first)
        saves.operation.row.update(state=State.CANCELLED)
        monkeypatch.setattr(cleaning.Unowned, "is_old", lambda *_: True)
        assert cleaning.sweep_unowned().num_unowned == 1
        names = {name.rpartition("/")[2] for name in store.of(first)}
        assert "best_model.pt" in names and not {"model.pt", "manifest.json"} & names
        assert integrity.check(second) is None
        assert cleaning.sweep_unowned().num_unowned == 0

    def test_a_missing_shared_file_is_found_by_all_who_have_it(self, store, saves):
        first, second = saves.save(), saves.save()
        store.lose(first, "best_model.pt")
        for each in (first, second):
            assert integrity.glance(each).missing == ["best_model.pt"]
            assert integrity.check(each).missing == ["best_model.pt"]

    def test_what_the_bucket_did_not_take_with_one_it_takes_with_the_next(self, store, saves):
        """The one before was staged, and never uploaded; the last one refers to it."""
        saves.stage()
        second = saves.commit(saves.stage())
        assert integrity.check(second) is None
        delete(second)
        assert store.names() == []

    def test_a_reference_to_an_attempt_whose_checkpoint_is_gone_is_not_stored(self, store, saves):
        first = saves.save()
        later = Saves(saves.operation, attempt=2)
        later.state = later.run.restore(verify(storage.directory(first.artifacts_path)))
        staged_next = later.stage()
        delete(first)
        with pytest.raises(CheckpointCorrupted, match="it no longer exists"):
            later.commit(staged_next)
        later.run.store.refer_to_none()
        assert integrity.check(later.save()) is None

    def test_a_delete_between_upload_and_commit_refuses_the_commit(self, store, saves):
        first = saves.save()
        later = Saves(saves.operation, attempt=2)
        later.state = later.run.restore(verify(storage.directory(first.artifacts_path)))
        checkpoint = later.stage()
        path = f"{saves.operation.pk}/{checkpoint.path.name}"
        remote.bucket().upload(path, threading.Event())
        delete(first)
        with pytest.raises(CheckpointCorrupted, match="deleted in the meantime"):
            services.commit(operation_id=saves.operation.pk, attempt=2, staged=staged(checkpoint))
        assert not Checkpoint.objects.exists()
