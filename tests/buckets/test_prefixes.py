"""Registered prefixes as a job reads them: through copies on this machine."""

import copy
import errno
import fcntl
from threading import Thread

import pytest
import torch
from torch.utils.data import DataLoader

from apps.datasets.directories import reading, registration
from tests.directories import making
from tests.waiting import wait_until
from trainops.datasets import copies
from trainops.datasets.directory import Directory
from trainops.datasets.errors import DataError, DirectoryAway, DirectoryChanged
from trainops.learning.readers import ImageFolder

pytestmark = [pytest.mark.slow, pytest.mark.django_db]
NOTES = "s3://data/shared/notes"


@pytest.fixture
def notes(bucket):
    """A registered prefix of three objects; return its id."""
    for name, content in {"a.txt": b"one", "b.txt": b"two", "empty.txt": b""}.items():
        bucket.put(f"notes/{name}", content)
    bucket.put("notes2/c.txt", b"of another prefix")
    return registration.add_or_find(NOTES)[0].pk


def opened(dataset_id):
    return Directory.open(reading.input_path(dataset_id), seed=0)


def content(directory, index):
    with directory.reading(index) as path:
        return path.read_bytes()


def gets(proxy, name):
    """How often the content of an object was requested."""
    return sum(method == "GET" and path.endswith(name) for method, path in proxy.seen)


def test_an_object_is_downloaded_once_for_all_attempts_of_a_machine(notes, s3_proxy):
    first, second = opened(notes), opened(notes)
    s3_proxy.seen.clear()
    assert [content(first, index) for index in range(3)] == [b"one", b"two", b""]
    assert [content(second, index) for index in range(3)] == [b"one", b"two", b""]
    assert (gets(s3_proxy, "a.txt"), gets(s3_proxy, "b.txt")) == (1, 1)
    assert first.place == NOTES and content(copy.deepcopy(first), 0) == b"one"


def test_objects_that_differ_are_named_before_the_job_starts(notes, bucket):
    bucket.remove("notes/a.txt")
    bucket.put("notes/c.txt", b"new")
    with pytest.raises(DirectoryChanged, match=f"{NOTES} is not .*a.txt is missing, c.txt is new"):
        opened(notes)
    bucket.put("notes/a.txt", b"ONE")
    bucket.remove("notes/c.txt")
    with pytest.raises(DirectoryChanged, match=r"a\.txt has another content"):
        opened(notes)


def test_an_object_that_changes_later_is_refused_by_name_when_it_is_read(notes, bucket):
    directory = opened(notes)
    assert content(directory, 1) == b"two"
    bucket.put("notes/a.txt", b"ONE")
    with pytest.raises(DirectoryChanged, match=r"a\.txt has another content"):
        content(directory, 0)
    bucket.remove("notes/a.txt")
    with pytest.raises(DirectoryChanged, match=r"a\.txt is missing"):
        content(directory, 0)
    assert content(directory, 1) == b"two"


@pytest.mark.parametrize("fault", ["expired", "500", "cut_download"])
def test_a_bucket_that_does_not_answer_is_away(notes, s3_proxy, fault):
    directory = opened(notes)
    s3_proxy.arm(fault, methods=("GET", "HEAD"))
    with pytest.raises(DirectoryAway, match=NOTES):
        content(directory, 0)
    if fault != "cut_download":
        with pytest.raises(DirectoryAway, match=NOTES):
            opened(notes)
    s3_proxy.disarm()
    assert content(directory, 0) == b"one"


def test_a_damaged_copy_is_downloaded_again(notes, s3_proxy):
    directory = opened(notes)
    with directory.reading(0) as path:
        pass
    path.write_bytes(b"ONE")
    other = opened(notes)
    s3_proxy.seen.clear()
    assert content(directory, 0) == b"one"
    path.write_bytes(b"o")
    assert content(other, 0) == b"one"
    assert gets(s3_proxy, "a.txt") == 2


def test_a_copy_in_use_is_not_evicted(notes):
    directory = opened(notes)
    assert content(directory, 1) == b"two"
    cache = directory.root.parents[1]
    with directory.reading(0) as path:
        assert copies.evict(cache, 1) == 3
        assert path.read_bytes() == b"one" and not (directory.root / "b.txt").exists()
    assert copies.evict(cache, 1) == 0
    assert content(directory, 1) == b"two"


def test_the_cache_stays_within_its_limit(bucket, settings):
    for number in range(12):
        bucket.put(f"many/{number:02}.bin", bytes([number]) * 1000)
    dataset, _ = registration.add_or_find("s3://data/shared/many")
    thresholds = settings.THRESHOLDS.model_copy(update={"dataset_cache_bytes": 5000})
    settings.THRESHOLDS = thresholds
    directory = opened(dataset.pk)
    for number in range(12):
        assert content(directory, number) == bytes([number]) * 1000
        assert sum(each.stat().st_size for each in directory.root.iterdir()) <= 5000
    with pytest.raises(DataError, match=r"12000 bytes.*allowed: 5000 \(TRAINOPS_DATASET_CACHE"):
        directory.unchanged()


def test_a_file_system_without_locks_is_named(notes, monkeypatch):
    def flock(descriptor, kind):
        raise OSError(errno.ENOLCK, "No locks available")

    directory = opened(notes)
    assert content(directory, 0) == b"one"
    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(DirectoryAway, match=r"a\.txt cannot be locked: No locks available"):
        content(directory, 0)


def test_copies_stay_for_a_library_that_reads_them_by_itself(notes):
    directory = opened(notes)
    root = directory.unchanged()
    assert sorted(each.name for each in root.iterdir()) == ["a.txt", "b.txt", "empty.txt"]
    assert copies.evict(root.parents[1], 1) == 6


def test_worker_processes_of_a_loader_download_what_they_read(bucket, tmp_path):
    making.image_folders(tmp_path / "photos")
    bucket.put_all(tmp_path / "photos", "photos")
    dataset, _ = registration.add_or_find("s3://data/shared/photos")
    images = ImageFolder(opened(dataset.pk), size=(8, 8))
    local = ImageFolder(tmp_path / "photos", size=(8, 8))
    batches = DataLoader(images, batch_size=3, num_workers=2, multiprocessing_context="fork")
    found = [(image, int(label)) for pixels, labels in batches
             for image, label in zip(pixels, labels, strict=True)]  # fmt: skip
    assert len(found) == len(local)
    for (image, label), (expected, number) in zip(found, local, strict=True):
        assert label == number and torch.equal(image, expected)


def test_a_second_reader_waits_for_the_download_of_the_first(notes, s3_proxy):
    directory, other = opened(notes), opened(notes)
    drafts = directory.root.parent / copies.DRAFTS
    s3_proxy.seen.clear()
    s3_proxy.arm("stall", 1, methods=("GET",), part="a.txt")
    found = []
    threads = [Thread(target=lambda d=d: found.append(content(d, 0))) for d in (directory, other)]
    threads[0].start()
    wait_until(lambda: s3_proxy.num_failed == 1)
    with copies.locked(next(drafts.iterdir()), fcntl.LOCK_EX | fcntl.LOCK_NB) as is_free:
        assert not is_free
    threads[1].start()
    s3_proxy.disarm()
    for each in threads:
        each.join(30)
    assert found == [b"one", b"one"]
    assert list(drafts.iterdir()) == []
