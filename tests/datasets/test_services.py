"""Datasets are stored whole or not at all, once, and not taken from under anybody's feet."""

import errno
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from io import BytesIO

import pytest
import time_machine
from django.contrib.auth.models import User
from django.core.files.base import File
from django.core.files.storage import Storage
from django.db import IntegrityError, connection, connections, transaction
from django.db.models import QuerySet
from django.utils import timezone

from apps.datasets import services, storage, usage, validation
from apps.datasets.errors import DatasetDamaged, DatasetError, DatasetInUse, DatasetNotFound
from apps.datasets.models import Dataset, FurtherUpload
from apps.installation import storages
from apps.installation.models import StorageBinding
from tests.datasets.conftest import parquet
from tests.thinning import some_of
from trainops.confined.calling import ConfinedProcessFailed, Killed, OutOfMemory, OutOfTime
from trainops.runtime.checkpoint import storage_identity
from trainops.runtime.errors import StorageAway

CSV = b"a,b\n1,x\n2,y\n"


def add(content=CSV, **more):
    return services.add_table(BytesIO(content), **{"filename": "table.csv"} | more)


def files(settings):
    """Every file there is, but the storage's identity."""
    root = settings.DATA_DIR
    found = (p for p in root.rglob("*") if p.is_file() and p.name != storage_identity.FILE)
    return sorted(str(p.relative_to(root)) for p in found)


@pytest.fixture
def bound(db):
    """The storage as `up` has bound it at the first start, before there are any files."""
    storages.require(storage.PLACE)


class RemoteStorage(Storage):
    """An object store: no paths; an object is there whole or not at all."""

    def __init__(self):
        self.objects = {}

    def _save(self, name, content):
        self.objects[name] = (content.read(), timezone.now())
        return name

    def _open(self, name, mode="rb"):
        if name not in self.objects:
            raise FileNotFoundError(name)
        return File(BytesIO(self.objects[name][0]), name)

    def exists(self, name):
        return name in self.objects

    def delete(self, name):
        self.objects.pop(name, None)

    def listdir(self, path):
        return [], list(self.objects)

    def get_modified_time(self, name):
        return self.objects[name][1]


@pytest.fixture
def remote(settings):
    settings.STORAGES = settings.STORAGES | {
        "datasets": {"BACKEND": "tests.datasets.test_services.RemoteStorage"}
    }


@pytest.fixture
def _nobody_asks():
    asked = list(usage._registered)
    usage._registered.clear()
    yield
    usage._registered[:] = asked


# --- adding


@pytest.mark.slow
@pytest.mark.django_db
def test_a_table_is_described_and_its_file_is_there(settings, person):
    dataset = add(name="My  table", owner=person)  # through a real process
    assert dataset.id == f"ds_{dataset.digest[:16]}"
    assert (dataset.name, dataset.filename, dataset.owner) == ("My table", "table.csv", person)
    assert (dataset.num_rows, dataset.num_columns, dataset.format) == (2, 2, "csv")
    assert [column["type"] for column in dataset.columns] == ["integer", "category"]
    assert dataset.preview == [[1, "x"], [2, "y"]]
    path = services.local_path(dataset.id)
    assert path.stat().st_size == dataset.size_bytes
    assert storage.digest_of(path) == dataset.digest
    assert files(settings) == [f"datasets/{dataset.digest}.parquet"]
    assert services.columns_of([dataset.id]) == {dataset.id: dataset.columns}


@pytest.mark.django_db
def test_the_same_upload_twice_is_one_dataset_and_is_read_once(in_process, monkeypatch):
    first = add()
    monkeypatch.setattr(validation, "normalise", None)
    again, is_new = services.add_or_find_table(BytesIO(CSV), filename="other.csv", name="other")
    assert (again.pk, again.name, is_new) == (first.pk, "table", False)


@pytest.mark.django_db
def test_the_same_table_in_other_clothes_is_the_same_dataset(in_process):
    content = parquet({"a": [1, 2], "b": ["x", "y"]})
    ids = {add().id, add(b"a;b\r\n1;x\r\n2;y").id, add(content, filename="t.parquet").id}
    assert len(ids) == 1 and Dataset.objects.count() == 1


@pytest.mark.django_db
def test_other_types_make_another_dataset(in_process):
    assert add().id != add(columns={"a": "number"}).id


@pytest.mark.slow
@pytest.mark.django_db
def test_the_web_process_stays_light():
    import subprocess
    import sys

    code = (
        "import django, sys; django.setup(); import apps.datasets.urls, trainops.http.urls;"
        "print([m for m in ('pyarrow', 'pandas', 'numpy', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("given", "kept", "name"),
    [
        ("../../etc/passwd", "passwd", "passwd"),
        ("C:\\data\\sales 2024.csv", "sales 2024.csv", "sales 2024"),
        ("a\x00b\n.csv", "ab.csv", "ab"),
        ("..", "", "table"),
        ("", "", "table"),
        ("x" * 300 + ".csv", "x" * 196 + ".csv", "x" * 196),
    ],
)
def test_file_names_are_only_shown(in_process, settings, given, kept, name):
    dataset = add(filename=given)
    assert (dataset.filename, dataset.name) == (kept, name)
    assert files(settings) == [f"datasets/{dataset.digest}.parquet"]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("content", "code", "field"),
    [
        (b"", "EMPTY_FILE", "file"),
        (b"a,b\n", "NO_ROWS", "file"),
        (b"a,b\n1\n", "RAGGED_ROWS", "file"),
        (b"\x1f\x8b", "COMPRESSED_FILE", "file"),
        (b"a\n\xff\n", "WRONG_ENCODING", "file"),
        (b"PAR1....PAR1", "INVALID_PARQUET", "file"),
    ],
)
def test_a_bad_table_leaves_nothing(in_process, settings, content, code, field):
    with pytest.raises(DatasetError) as error:
        add(content)
    assert error.value.code == code
    assert list(error.value.errors) == [field]
    assert error.value.details["fields"] == error.value.errors
    assert not Dataset.objects.exists() and files(settings) == []


@pytest.mark.django_db
def test_a_bad_name_is_refused(in_process):
    for name in ("x" * 201, "a\x07b"):
        with pytest.raises(DatasetError) as error:
            add(name=name)
        assert list(error.value.errors) == ["name"]


@pytest.mark.django_db
def test_too_many_bytes(in_process, settings):
    settings.THRESHOLDS = settings.THRESHOLDS.model_copy(update={"max_upload_bytes": 10})
    with pytest.raises(DatasetError) as error:
        add()
    assert (error.value.code, error.value.status) == ("UPLOAD_TOO_LARGE", 413)
    assert error.value.details["allowed"] == 10
    assert files(settings) == []


# --- when things break


@pytest.mark.django_db
@pytest.mark.parametrize("stage", ["_receive", "normalise", "put"])
def test_a_full_disk_leaves_nothing(in_process, settings, monkeypatch, stage):
    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    owner = {"_receive": services, "normalise": validation, "put": storage}[stage]
    monkeypatch.setattr(owner, stage, full)
    with pytest.raises(DatasetError) as error:
        add()
    assert (error.value.code, error.value.status) == ("DISK_FULL", 507)
    assert not Dataset.objects.exists() and files(settings) == []


@pytest.mark.django_db
def test_a_disk_that_fills_while_the_file_is_copied(in_process, settings, monkeypatch):
    def half(reader, writer, length):
        writer.write(reader.read(10))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(storage.shutil, "copyfileobj", half)
    with pytest.raises(DatasetError):
        add()
    assert not Dataset.objects.exists() and files(settings) == []


@pytest.mark.django_db
def test_a_row_that_cannot_be_written_leaves_a_file_for_the_sweep(
    bound, in_process, settings, monkeypatch
):
    def broken(*args, **kwargs):
        raise RuntimeError("no database")

    with monkeypatch.context() as patch:
        patch.setattr(QuerySet, "get_or_create", broken)
        with pytest.raises(RuntimeError):
            add()
    assert len(files(settings)) == 1 and services.sweep_files() == 0  # it may be in the making
    with time_machine.travel(timezone.now() + timedelta(hours=2)):
        assert services.sweep_files() == 1
    assert files(settings) == []


@pytest.mark.django_db
def test_the_sweep_leaves_what_is_owned_and_takes_what_crashed_uploads_left(in_process, settings):
    dataset = add()
    left = settings.DATA_DIR / "uploads" / "upload-dead"
    left.mkdir(parents=True)
    (left / "source").write_bytes(b"half")
    (left.parent / "tmpx1.upload.csv").write_bytes(b"of a server that died")
    with time_machine.travel(timezone.now() + timedelta(hours=2)):
        assert services.sweep_files() == 2
    assert files(settings) == [f"datasets/{dataset.digest}.parquet"]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Killed("It died of signal 11."), "UNREADABLE_FILE"),
        (OutOfTime("It takes longer than 2 seconds."), "TABLE_TOO_LARGE"),
        (OutOfMemory("It takes more than 2 bytes of memory."), "TABLE_TOO_LARGE"),
        (ConfinedProcessFailed("ValueError: what is wrong"), "UNREADABLE_FILE"),
    ],
)
def test_a_reader_that_dies_ends_no_other_process(settings, monkeypatch, error, code):
    def die(*_):
        raise error

    monkeypatch.setattr(validation, "call", die)
    with pytest.raises(DatasetError) as caught:
        add()
    assert caught.value.code == code
    assert files(settings) == []


@pytest.mark.slow
@pytest.mark.django_db
@pytest.mark.parametrize("as_dictionary", [True, False])
def test_the_reader_has_bounded_memory(monkeypatch, as_dictionary):
    import pyarrow as pa

    monkeypatch.setattr(validation, "MEMORY_BYTES", 400 * 1024**2)
    one = pa.DictionaryArray.from_arrays(pa.array([0] * 15_000, pa.int32()), ["x" * 100_000])
    content = parquet({"a": one}, store_schema=as_dictionary)  # 1.5 GB in some kilobytes
    assert len(content) < 1_000_000
    with pytest.raises(DatasetError) as error:
        add(content)
    assert error.value.code == "TABLE_TOO_LARGE"


@pytest.mark.slow
@pytest.mark.django_db
@pytest.mark.parametrize("num_columns", some_of([1000, 785, 300], every=3))
def test_a_wide_table_takes_no_more_memory_than_a_narrow_one(num_columns):
    names = ",".join(f"c{number}" for number in range(num_columns))
    row = ",".join(["0.123457"] * num_columns)
    num_rows = 20 * 2**20 // len(row)
    dataset = add("\n".join([names, *[row] * num_rows, ""]).encode())  # in a real process
    assert (dataset.num_columns, dataset.num_rows) == (num_columns, num_rows)


# --- using and deleting


@pytest.mark.django_db
def test_an_altered_or_missing_file_is_noticed_and_mended_by_another_upload(in_process):
    dataset = add()
    path = services.local_path(dataset.id)
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)
    with pytest.raises(DatasetDamaged, match="was altered"):
        services.local_path(dataset.id)
    path.unlink()
    with pytest.raises(DatasetDamaged, match="is missing"):
        services.local_path(dataset.id)
    assert add().id == dataset.id
    assert services.local_path(dataset.id) == path


@pytest.mark.django_db
def test_a_file_is_not_called_damaged_on_a_machine_without_the_storage(in_process):
    storages.require(storage.PLACE)
    dataset = add()
    path = services.local_path(dataset.id)
    path.unlink()
    identity = path.parent / storage_identity.FILE
    content = identity.read_bytes()
    identity.unlink()  # as on a machine with a data directory of its own
    with pytest.raises(StorageAway, match="not mounted"):
        services.local_path(dataset.id)
    storage_identity.write(path.parent, "0" * 32)  # of another installation
    with pytest.raises(StorageAway, match="belongs to another installation"):
        services.local_path(dataset.id)
    identity.write_bytes(content)
    with pytest.raises(DatasetDamaged, match="is missing"):
        services.local_path(dataset.id)


@pytest.mark.django_db
@pytest.mark.parametrize("dataset_id", ["ds_0000000000000000", "../../etc/passwd", "", "x" * 999])
def test_ids_that_do_not_exist(dataset_id):
    for ask in (services.get, services.local_path):
        with pytest.raises(DatasetNotFound):
            ask(dataset_id)
    assert services.missing([dataset_id]) == [dataset_id]


@pytest.mark.django_db
def test_those_that_are_missing(in_process):
    dataset = add()
    assert services.missing([]) == []
    assert services.missing([dataset.id, "ds_nope", "ds_nope"]) == ["ds_nope"]
    with transaction.atomic():
        assert services.missing([dataset.id]) == []


@pytest.mark.django_db
@pytest.mark.usefixtures("_nobody_asks")
def test_a_dataset_in_use_is_not_deleted(in_process, settings):
    dataset = add()
    needed = {dataset.id: ["op_1", "op_2"]}

    def who_uses(dataset_id):
        return needed.get(dataset_id, [])

    usage.register(who_uses)
    usage.register(who_uses)
    with pytest.raises(DatasetInUse) as error:
        services.delete(dataset_id=dataset.id)
    assert error.value.status == 409
    assert error.value.details["operation_ids"] == ["op_1", "op_2"]
    assert services.local_path(dataset.id).exists() and usage.is_in_use(dataset.id)
    needed.clear()
    services.delete(dataset_id=dataset.id)
    assert files(settings) == [] and services.missing([dataset.id]) == [dataset.id]
    with pytest.raises(DatasetNotFound):
        services.delete(dataset_id=dataset.id)


@pytest.mark.django_db
def test_datasets_outlive_their_owner(in_process, person):
    dataset = add(owner=person)
    User.objects.all().delete()
    assert services.get(dataset.id).owner is None


def at_once(*actions):
    """Run each action in a thread of its own; return what they returned. Errors are raised."""
    together = threading.Barrier(len(actions))

    def act(action):
        together.wait(timeout=30)
        try:
            return action()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(actions)) as threads:
        return [future.result(timeout=60) for future in [threads.submit(act, a) for a in actions]]


@pytest.mark.database
@pytest.mark.django_db(transaction=True)
def test_the_same_upload_at_once_is_one_dataset(in_process, settings):
    def upload():
        return services.add_or_find_table(BytesIO(CSV), filename="t.csv")

    found = at_once(*[upload] * 6)
    assert len({dataset.id for dataset, _ in found}) == 1 == Dataset.objects.count()
    assert sum(is_new for _, is_new in found) == 1
    assert len(files(settings)) == 1


@pytest.mark.slow
@pytest.mark.database
@pytest.mark.django_db(transaction=True)
def test_uploads_and_deletions_at_once_never_leave_a_row_without_its_file(in_process):
    stop = time.monotonic() + 2

    def keep_adding():
        while time.monotonic() < stop:
            add()

    def keep_deleting():
        while time.monotonic() < stop:
            for dataset_id in Dataset.objects.values_list("id", flat=True):
                with suppress(DatasetNotFound):
                    services.delete(dataset_id=dataset_id)

    at_once(keep_adding, keep_adding, keep_deleting)
    for dataset in Dataset.objects.all():
        assert services.local_path(dataset.id).exists()


# --- on a remote storage


@pytest.mark.django_db
@pytest.mark.usefixtures("remote")
def test_a_remote_file_is_downloaded_once_and_checked(in_process, settings, monkeypatch):
    dataset = add()
    assert files(settings) == []
    path = services.local_path(dataset.id)
    assert path.parent == settings.DATA_DIR / "cache" / "datasets"
    with monkeypatch.context() as patch:
        patch.setattr(storage, "_download", None)
        assert services.local_path(dataset.id) == path
    path.write_bytes(b"altered")
    assert storage.digest_of(services.local_path(dataset.id)) == dataset.digest
    assert len(files(settings)) == 1


@pytest.mark.django_db
@pytest.mark.usefixtures("remote")
def test_a_remote_file_that_is_gone_or_altered(in_process, settings):
    storages.require(storage.PLACE)
    dataset = add()
    remote = storage._storage()
    name = f"{dataset.digest}.parquet"
    remote.delete(name)
    with pytest.raises(DatasetDamaged, match="is missing"):
        services.local_path(dataset.id)
    remote.save(name, BytesIO(b"other"))
    with pytest.raises(DatasetDamaged, match="was altered"):
        services.local_path(dataset.id)
    assert files(settings) == []


@pytest.mark.django_db
@pytest.mark.usefixtures("remote")
def test_the_cache_is_bounded_and_forgets_what_was_not_used_for_longest(in_process, settings):
    datasets = [add(b"a\n" + str(n).encode() + b"\n") for n in range(4)]
    settings.DATASET_CACHE_BYTES = 2 * datasets[0].size_bytes + 10
    paths = []
    for age, dataset in zip((4000, 3000, 2000, 0), datasets, strict=True):
        path = services.local_path(dataset.id)
        moment = time.time() - age
        os.utime(path, (moment, moment))
        paths.append(path)
    assert [path.exists() for path in paths] == [False, False, True, True]


@pytest.mark.django_db
@pytest.mark.usefixtures("remote")
def test_a_remote_dataset_is_deleted_and_swept(bound, in_process):
    dataset = add()
    services.delete(dataset_id=dataset.id)
    assert not storage.exists(dataset.digest)
    add()
    Dataset.objects.all().delete()
    with time_machine.travel(timezone.now() + timedelta(hours=2)):
        assert services.sweep_files() == 1


def test_files_of_another_installation_are_never_swept(in_process, bound, settings):
    dataset = add()
    Dataset.objects.all().delete()
    StorageBinding.objects.all().delete()
    with (
        time_machine.travel(timezone.now() + timedelta(hours=2)),
        pytest.raises(storages.ForeignStorage),
    ):
        services.sweep_files()
    assert files(settings) == [f"datasets/{dataset.digest}.parquet"]


def test_only_digests_become_names():
    for digest in ("../x", "", "A" * 64):
        with pytest.raises(ValueError):
            storage.exists(digest)


@pytest.mark.django_db
def test_the_database_refuses_an_empty_dataset():
    with pytest.raises(IntegrityError):
        Dataset.objects.create(
            id="ds_1",
            num_rows=0,
            num_columns=1,
            columns=[],
            preview=[],
            source_bytes=1,
            size_bytes=1,
        )


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("table", ["datasets_dataset", "auth_user"])
def test_a_version_that_knows_no_further_uploads_can_delete_what_they_refer_to(
    in_process, person, table
):
    """It deletes the file before the commit, which must not fail then."""
    dataset = add()
    add(owner=person)
    with transaction.atomic(), connection.cursor() as cursor:
        key = dataset.pk if table == "datasets_dataset" else person.pk
        cursor.execute(f"DELETE FROM {table} WHERE id = %s", [key])  # noqa: S608 - two names
    assert FurtherUpload.objects.count() == 1
    if table == "datasets_dataset":
        assert add().pk == dataset.pk  # ids come from the content
        assert not FurtherUpload.objects.exists()
