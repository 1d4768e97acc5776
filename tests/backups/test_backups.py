"""What a backup holds, what it refuses, and what it says of files that are not there."""

from datetime import timedelta
from io import BytesIO
from pathlib import Path

import pytest
from django.utils import timezone

from apps.backups import database, making, restoring, snapshots
from apps.backups.errors import Busy, DatabaseProblem, ForeignPlace, NotABackup
from apps.backups.files import BackupFiles
from apps.backups.store import opened
from apps.checkpoints import services, storage
from apps.checkpoints.models import Checkpoint
from apps.datasets import services as datasets
from apps.operations.lifecycle import State
from tests.api.saved import damage, saved
from tests.operations.rows import in_state
from trainops.encrypted_files import Altered

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "backups"


@pytest.fixture
def backups(directory, tmp_path):
    return opened(str(directory), None, tmp_path)


@pytest.fixture
def checkpoint():
    return saved(in_state(State.CANCELLED))


def newest(backups):
    return snapshots.read(backups, snapshots.find(backups))


def path(backups, file, name=""):
    """Return where a file of a backup is."""
    return backups.place.root / snapshots.name_of(name or snapshots.find(backups), file)


def test_it_has_every_file_once_and_copies_only_what_is_new(backups, checkpoint, in_process):
    dataset = datasets.add_table(BytesIO(b"a,b\n1,2\n2,3\n"), filename="small.csv")
    first = making.make(backups)
    assert first.snapshot.losses == []
    assert first.snapshot.checkpoints == {checkpoint.artifacts_path: checkpoint.manifest_digest}
    assert first.snapshot.datasets == [dataset.digest]
    assert list(snapshots.problems(backups, snapshots.find(backups))) == []
    further = saved(in_state(State.CANCELLED))
    second = making.make(backups)
    assert second.snapshot.checkpoints.keys() == {
        checkpoint.artifacts_path, further.artifacts_path
    }  # fmt: skip
    # The weights of both are equal; of the new one its manifest and state are new at most.
    assert second.copied_bytes - database_bytes(backups) < 10_000
    assert len(list(snapshots.newest_first(backups))) == 2


def database_bytes(backups):
    return path(backups, snapshots.DATABASE).stat().st_size


def test_what_a_newer_checkpoint_replaced_meanwhile_is_no_loss(backups, checkpoint, monkeypatch):
    """Between the copy of the database and that of the files one is deleted, another made."""
    copy, others = database.snapshot, []

    def snapshot(target, queries):
        found = copy(target, queries)
        if not others:
            others.append(saved(checkpoint.operation, step=20))
            services.delete(Checkpoint.objects.filter(pk=checkpoint.pk))
        return found

    monkeypatch.setattr(database, "snapshot", snapshot)
    made = making.make(backups)
    assert made.snapshot.losses == []
    assert list(made.snapshot.checkpoints) == [others[0].artifacts_path]


def test_missing_and_altered_files_are_named_and_the_rest_is_saved(backups, checkpoint):
    altered, gone = saved(in_state(State.CANCELLED)), saved(in_state(State.CANCELLED))
    damage(altered)
    (storage.directory(gone.artifacts_path) / "state.json").unlink()
    losses = {each.what: each.why for each in making.make(backups).snapshot.losses}
    assert losses == {
        altered.artifacts_path: "was altered",
        gone.artifacts_path: "state.json is missing",
    }
    assert newest(backups).checkpoints.keys() == {checkpoint.artifacts_path}


def test_the_newest_are_kept_with_their_files_and_no_others(backups, checkpoint):
    making.make(backups)
    services.delete(Checkpoint.objects.all())
    kept = saved(in_state(State.CANCELLED), step=77)
    making.make(backups, keep=1)
    assert len(list(snapshots.newest_first(backups))) == 1
    stored = {each.rpartition("/")[2] for each in BackupFiles(backups).sizes}
    assert stored == newest(backups).files.keys() and kept.manifest_digest in stored
    assert checkpoint.manifest_digest not in stored


def test_a_backup_follows_those_of_a_clock_that_was_ahead(backups, checkpoint, monkeypatch, caplog):
    ahead = timezone.now() + timedelta(days=400)
    with monkeypatch.context() as patch:
        patch.setattr(making.timezone, "now", lambda: ahead)
        wrong = making.make(backups).name
    made = [making.make(backups).name for _ in range(2)]
    assert snapshots.newest_first(backups) == [made[1], made[0], wrong]
    assert snapshots.find(backups) == made[1]
    assert f"{wrong}, is in the future" in caplog.text
    last = making.make(backups, keep=1).name
    assert snapshots.newest_first(backups) == [last]


def test_with_a_kept_backup_that_cannot_be_read_nothing_is_deleted(backups, checkpoint):
    oldest, kept = making.make(backups), making.make(backups)
    path(backups, snapshots.INDEX, kept.name).write_text("{")
    services.delete(Checkpoint.objects.all())
    before = BackupFiles(backups).sizes
    made = making.make(backups, keep=2)
    assert f"{kept.name}/snapshot.json cannot be read" in made.not_thinned
    assert snapshots.newest_first(backups) == [made.name, kept.name, oldest.name]
    assert BackupFiles(backups).sizes == before
    assert making.make(backups, keep=1).not_thinned == ""
    assert len(snapshots.newest_first(backups)) == 1


def test_only_one_process_writes_at_a_time(backups, checkpoint):
    making.make(backups)
    with backups.lock(), pytest.raises(Busy, match="Another backup"):
        making.make(backups)


def test_an_interrupted_backup_does_not_count_and_leaves_nothing(backups, checkpoint, monkeypatch):
    making.make(backups)
    before = newest(backups)

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(snapshots, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            making.make(backups)
    assert newest(backups) == before
    left = {each.partition("/")[0] for each in files_below(backups.place.root / "snapshots")}
    assert left == {snapshots.find(backups)}
    assert not list(backups.place.root.glob(".draft-*"))


FOREIGN = (
    "snapshots/monday/db.dump", "files/family/photo.jpg", "files/ab/photo.jpg", ".draft-letter",
    "snapshots/20200101T000000Z/photo.jpg",
)  # fmt: skip


def place_foreign_files(root):
    for name in FOREIGN:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"of others")


def test_files_of_others_and_permissions_stay_as_they_are(backups, directory, checkpoint):
    making.make(backups)
    interrupted = directory / snapshots.name_of("20200101T000000Z", snapshots.DATABASE)
    place_foreign_files(directory)
    interrupted.write_bytes(b"")
    unused = directory / backups.name_of("ab" * 32)
    unused.parent.mkdir(exist_ok=True)
    unused.write_bytes(b"")
    directory.chmod(0o755)
    for _ in range(2):
        making.make(backups, keep=1)
    assert {name for name in FOREIGN if (directory / name).exists()} == set(FOREIGN)
    assert directory.stat().st_mode & 0o777 == 0o755
    assert not interrupted.exists() and not unused.exists()


@pytest.mark.parametrize("name", FOREIGN)
def test_a_directory_of_others_is_refused_and_not_changed(name, backups, directory, checkpoint):
    (directory / name).parent.mkdir(parents=True)
    (directory / name).write_bytes(b"of others")
    before = files_below(directory)
    with pytest.raises(ForeignPlace, match=f"such as {name}. Use an empty"):
        making.make(backups)
    assert files_below(directory) == before


def test_a_place_with_an_interrupted_first_backup_is_used(backups, directory, checkpoint):
    first = making.make(backups)
    (directory / snapshots.name_of(first.name)).unlink()
    (directory / ".draft-0123456789abcdef").write_bytes(b"")
    making.make(backups)
    assert not (directory / ".draft-0123456789abcdef").exists()


def files_below(root):
    return {str(each.relative_to(root)) for each in root.rglob("*")}


@pytest.mark.parametrize("how", ["altered", "missing", "cut off", "database"])
def test_a_damaged_backup_is_found_and_not_restored(how, backups, checkpoint, monkeypatch):
    making.make(backups)
    name = snapshots.find(backups)
    damaged = backups.place.root / backups.name_of(checkpoint.manifest_digest)
    if how == "database":
        damaged = path(backups, snapshots.DATABASE)
    content = damaged.read_bytes()
    if how == "missing":
        damaged.unlink()
    else:
        damaged.write_bytes(content[:-1] if how == "cut off" else content[:-1] + b"#")
    (problem,) = snapshots.problems(backups, name)
    assert ("missing" if how == "missing" else "altered") in problem
    monkeypatch.setattr(database, "require_empty", lambda: None)
    with pytest.raises(NotABackup, match=r"is damaged: the (file|database)"):
        restoring.restore(backups, name)


def test_only_an_empty_database_is_filled(backups, checkpoint):
    making.make(backups)
    with pytest.raises(DatabaseProblem, match="not empty"):
        restoring.restore(backups, snapshots.find(backups))


def test_another_engine_is_refused_with_what_to_do(backups):
    with pytest.raises(DatabaseProblem, match="TRAINOPS_DATABASE_URL"):
        database.restore(Path("none"), "sqlite" if database.engine() != "sqlite" else "postgresql")


def test_the_storage_of_another_installation_is_not_written(backups, checkpoint, monkeypatch):
    making.make(backups)
    monkeypatch.setattr(database, "require_empty", lambda: None)
    (storage.settings.CHECKPOINT_ROOT / "trainops-storage.json").unlink()
    other = '{"format": "trainops-storage", "version": 1, "id": "another"}'
    (storage.settings.CHECKPOINT_ROOT / "trainops-storage.json").write_text(other)
    with pytest.raises(NotABackup, match="belongs to another installation"):
        restoring.restore(backups, snapshots.find(backups))


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": "x"}', "\0"])
def test_an_index_that_cannot_be_read_is_named(content, backups, checkpoint):
    making.make(backups)
    path(backups, snapshots.INDEX).write_text(content)
    with pytest.raises(NotABackup, match=r"snapshot\.json cannot be read"):
        newest(backups)


def test_an_index_and_a_secret_key_are_not_read_beyond_their_largest_size(
    backups, checkpoint, monkeypatch, tmp_path
):
    making.make(backups)
    monkeypatch.setattr(snapshots, "MAX_INDEX_BYTES", 100)
    with pytest.raises(NotABackup, match=r"snapshot\.json cannot be read: it has more than 100 b"):
        newest(backups)
    path(backups, snapshots.SECRET_KEY).write_bytes(bytes(snapshots.MAX_KEY_BYTES + 1))
    with pytest.raises(NotABackup, match="is none: it has more than 65,536 bytes"):
        snapshots.place_key(backups, snapshots.find(backups), tmp_path / "new")


def test_a_newer_format_asks_for_an_update(backups, checkpoint):
    making.make(backups)
    index = path(backups, snapshots.INDEX)
    index.write_text(index.read_text().replace('"version": 1', '"version": 2', 1))
    with pytest.raises(NotABackup, match="newer trainops"):
        newest(backups)


def test_the_secret_key_is_private_and_only_there_if_it_is_in_a_file(
    backups, checkpoint, monkeypatch, tmp_path
):
    making.make(backups)
    key, root = path(backups, snapshots.SECRET_KEY), backups.place.root
    assert {each.stat().st_mode & 0o077 for each in (root, key)} == {0}
    (tmp_path / "new").mkdir()
    snapshots.place_key(backups, snapshots.find(backups), tmp_path / "new")
    assert (tmp_path / "new" / "secret_key").stat().st_mode & 0o077 == 0
    assert (tmp_path / "new" / "secret_key").read_text() == key.read_text()
    monkeypatch.setenv("TRAINOPS_SECRET_KEY", "from elsewhere")
    making.make(backups)
    assert not path(backups, snapshots.SECRET_KEY).exists()


def test_a_file_appears_with_the_digest_of_its_name_or_not_at_all(backups, directory):
    directory.mkdir()
    files = BackupFiles(backups)
    with pytest.raises(Altered):
        files.add(BytesIO(b"other"), "0" * 64)
    assert list(directory.iterdir()) == [] and files.size("0" * 64) is None
