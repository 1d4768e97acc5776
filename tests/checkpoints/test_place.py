"""A storage that is away, foreign, or newer than the database: nothing in it is lost."""

import os
import shutil
import time

import pytest

from apps.checkpoints import cleaning, integrity, place, services, storage
from apps.checkpoints.models import Checkpoint, UnownedCheckpoint
from apps.installation import storages
from apps.installation.models import StorageBinding
from apps.operations.lifecycle import State
from tests.api.saved import saved
from tests.operations import rows
from trainops.clock import seconds_from_now
from trainops.runtime.checkpoint import storage_identity
from trainops.runtime.errors import StorageAway

pytestmark = [pytest.mark.django_db, pytest.mark.database]
LONG_AGO = time.time() - 3 * 24 * 3600


@pytest.fixture
def root(settings):
    return settings.CHECKPOINT_ROOT


def unmount(root):
    """What an unmounted directory looks like: the mount point is there, and empty."""
    root.rename(root.with_name("elsewhere"))
    root.mkdir()


def mount(root):
    shutil.rmtree(root, ignore_errors=True)
    root.with_name("elsewhere").rename(root)


def a_checkpoint(state=State.CANCELLED, **given):
    return saved(rows.in_state(state), **given)


def age(root):
    for path in [*root.rglob("*"), root]:
        os.utime(path, (LONG_AGO, LONG_AGO))


def test_a_new_storage_is_bound_at_its_first_use(root):
    storage_id = place.require()
    assert storage_identity.read(root) == storage_id == place.require()
    assert StorageBinding.objects.get(pk="checkpoints").bound_at is not None


@pytest.mark.parametrize("is_mount_point_left", [True, False])
def test_a_storage_that_is_away_marks_nothing_and_is_not_made_anew(root, is_mount_point_left):
    checkpoint = a_checkpoint()
    unmount(root)
    if not is_mount_point_left:
        root.rmdir()
    for call in (integrity.check, integrity.glance):
        with pytest.raises(StorageAway, match="identity file"):
            call(checkpoint)
    with pytest.raises(StorageAway):
        cleaning.clean_up(actor="test", older_than_days=0)
    assert (root.exists() and any(root.iterdir())) is False
    checkpoint.refresh_from_db()
    assert checkpoint.health == "healthy"

    mount(root)
    assert integrity.check(checkpoint) is None


def test_missing_files_are_unavailable_and_a_verification_that_passes_heals_the_row(root):
    checkpoint = a_checkpoint()
    directory = storage.directory(checkpoint.artifacts_path)
    directory.rename(directory.with_name("hidden"))

    problem = integrity.check(checkpoint)

    checkpoint.refresh_from_db()
    assert (checkpoint.health, problem.altered) == ("unavailable", [])
    assert checkpoint.missing_artifacts == problem.missing
    assert {"manifest.json", "state.json"} <= set(problem.missing)
    assert services.to_resume_from(checkpoint.operation_id) == [checkpoint]  # tried again

    directory.with_name("hidden").rename(directory)
    assert integrity.check(checkpoint) is None
    checkpoint.refresh_from_db()
    assert (checkpoint.health, checkpoint.missing_artifacts) == ("healthy", [])


def test_altered_files_are_corrupted_until_a_verification_passes():
    checkpoint = a_checkpoint()
    path = storage.directory(checkpoint.artifacts_path) / "model.pt"
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    integrity.check(checkpoint)
    checkpoint.refresh_from_db()
    assert (checkpoint.health, checkpoint.altered_artifacts) == ("corrupted", ["model.pt"])
    assert services.to_resume_from(checkpoint.operation_id) == []

    path.write_bytes(content)
    assert integrity.check(checkpoint) is None
    checkpoint.refresh_from_db()
    assert checkpoint.health == "healthy"
    assert services.to_resume_from(checkpoint.operation_id) == [checkpoint]


def forget_everything():
    """What a database knows that was made anew."""
    Checkpoint.objects.all().delete()
    StorageBinding.objects.all().delete()


def test_another_installations_storage_is_never_swept(root):
    a_checkpoint(type="final")
    age(root)
    before = sorted(root.rglob("*"))
    forget_everything()
    with pytest.raises(storages.ForeignStorage, match="--take-over-storage"):
        cleaning.clean_up(actor="test")
    assert sorted(root.rglob("*")) == before


def test_a_storage_from_before_identities_is_bound_by_the_rows_that_it_holds(root):
    checkpoint = a_checkpoint()
    StorageBinding.objects.all().delete()
    (root / storage_identity.FILE).unlink()
    assert integrity.check(checkpoint) is None
    assert storage_identity.read(root)


def test_a_storage_from_before_identities_with_none_of_the_rows_files_is_away(root):
    a_checkpoint()
    StorageBinding.objects.all().delete()
    unmount(root)
    with pytest.raises(StorageAway, match="none of the 1"):
        place.require()
    assert not any(root.iterdir())


def test_an_unknown_storage_with_files_is_not_bound(root):
    a_checkpoint()
    forget_everything()
    (root / storage_identity.FILE).unlink()
    with pytest.raises(storages.ForeignStorage, match="not in this database"):
        place.require()


def test_taking_over_makes_the_storage_foreign_to_who_had_it(root):
    before = place.require()
    StorageBinding.objects.all().delete()
    after = storages.take_over(place.here())
    assert place.require() == after != before
    StorageBinding.objects.update(storage_id=before)
    with pytest.raises(storages.ForeignStorage):
        place.require()


def test_an_identity_that_was_not_written_before_a_crash_is_written_later(root):
    StorageBinding.objects.create(name="checkpoints", storage_id="f" * 32)
    assert place.require() == "f" * 32 == storage_identity.read(root)


def test_a_whole_checkpoint_without_a_row_goes_days_after_it_was_found(settings, root):
    kept = a_checkpoint(step=30)
    lost = saved(kept.operation, step=20)
    Checkpoint.objects.filter(pk=lost.pk).delete()
    age(root)
    directory = storage.directory(lost.artifacts_path)

    for _ in range(2):
        freed = cleaning.sweep_unowned()
        assert (freed.num_unowned, freed.num_trashed, directory.exists()) == (0, 1, True)
    days = settings.THRESHOLDS.trash_days + 1
    UnownedCheckpoint.objects.update(found_at=seconds_from_now(-days * 86_400))
    assert cleaning.sweep_unowned().num_unowned == 1
    assert not directory.exists()
    assert not UnownedCheckpoint.objects.exists()
    assert storage.directory(kept.artifacts_path).exists()


def test_what_is_deleted_while_a_sweep_reads_the_storage_stays_known(root, monkeypatch):
    """It is in no listing any more, should its files be back with the storage."""
    known = [f"op_{number:026}/a1_s1" for number in range(2 * cleaning.BATCH + 1)]
    UnownedCheckpoint.objects.bulk_create(UnownedCheckpoint(pk=path) for path in known)
    listed = storage.stored

    def listed_slowly():
        UnownedCheckpoint.objects.create(pk="new", is_deleted=True)
        UnownedCheckpoint.objects.filter(pk=known[0]).update(is_deleted=True)
        return listed()

    place.require()
    monkeypatch.setattr(storage, "stored", listed_slowly)
    cleaning.sweep_unowned()
    assert set(UnownedCheckpoint.objects.values_list("pk", flat=True)) == {"new", known[0]}


def test_an_emptied_trash_goes_at_once(root):
    kept = a_checkpoint(step=30)
    lost = saved(kept.operation, step=20)
    Checkpoint.objects.filter(pk=lost.pk).delete()
    age(root)
    assert cleaning.clean_up(actor="test", empty_trash=True, dry_run=True).num_unowned == 1
    assert cleaning.clean_up(actor="test", empty_trash=True).num_unowned == 1
    assert not storage.directory(lost.artifacts_path).exists()


def test_what_was_deleted_on_purpose_and_is_still_there_goes_at_once(root):
    checkpoint = a_checkpoint()
    services.delete(Checkpoint.objects.all())  # its files go with the commit, which never comes
    age(root)
    directory = storage.directory(checkpoint.artifacts_path)
    assert directory.exists()
    assert cleaning.sweep_unowned().num_unowned == 1
    assert not directory.exists()
