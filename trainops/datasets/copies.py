"""Copies of objects on this machine's disk: `CACHE/DATASET/files/NAME`, at most N bytes.

Attempts share the copies. All locks are advisory locks (flock) and end with their process: a copy
is locked while it is read, a draft while it is downloaded, a dataset's `lock` while all of its
copies must stay.
"""

import fcntl
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from trainops.datasets.errors import DataError, DirectoryAway, changed
from trainops.datasets.location import FILES
from trainops.datasets.objects import Prefix

DRAFTS, LOCK = "drafts", "lock"
SCAN_SHARE = 20  # the cache is measured after downloads of 1/20 of its limit, in each process
KEPT_SHARE = 0.9  # of the limit, after an eviction


@dataclass(slots=True)
class Copies:
    """The copies of a dataset. `num_new_bytes` were downloaded since the cache was measured."""

    prefix: Prefix
    cache: Path
    dataset_id: str
    limit_bytes: int
    num_new_bytes: int = 0
    is_measured: bool = False
    pin: int = -1  # descriptor of the dataset's lock, which is kept until the process ends

    def touch(self) -> None:
        """Make the dataset the one that was used latest, whose copies are evicted last."""
        folder = self.cache / self.dataset_id
        with self._stored():
            for each in (FILES, DRAFTS):
                (folder / each).mkdir(parents=True, exist_ok=True)
            (folder / LOCK).touch()

    @contextmanager
    def held(self, name: str, is_intact: Callable[[], bool]) -> Iterator[None]:
        """Have the copy of an object here within the block, downloaded if there is none.

        `is_intact` compares the copy with the digests; a damaged copy is downloaded again. Raises
        DirectoryChanged where what was downloaded is not intact or the object is missing, and
        DirectoryAway.
        """
        path = self.cache / self.dataset_id / FILES / name
        is_new = False
        while True:
            with locked(path, fcntl.LOCK_SH) as is_here:
                if is_here and is_intact():
                    yield
                    return
                if is_here:
                    path.unlink(missing_ok=True)
                    if is_new:
                        raise changed(self.prefix, [f"{name} has another content"])
            is_new = self._download(name, path)

    def keep_all(self, num_bytes: int) -> None:
        """Keep all copies of the dataset until the process ends. Raises DataError for too many."""
        if num_bytes > self.limit_bytes:
            raise DataError(
                f"{self.prefix} has {num_bytes} bytes, and all of its files are needed at a time; "
                f"allowed: {self.limit_bytes} (TRAINOPS_DATASET_CACHE_BYTES)"
            )
        if self.pin < 0:
            self.pin = os.open(self.cache / self.dataset_id / LOCK, os.O_RDONLY)
            fcntl.flock(self.pin, fcntl.LOCK_SH)

    def _download(self, name: str, path: Path) -> bool:
        """Download an object; return False where another process was faster."""
        digest = blake2b(name.encode(), digest_size=20).hexdigest()
        draft = self.cache / self.dataset_id / DRAFTS / digest
        with self._stored():
            path.parent.mkdir(parents=True, exist_ok=True)
            draft.touch()
        with locked(draft, fcntl.LOCK_EX) as is_here:
            if not is_here:
                return False
            if path.exists():
                draft.unlink()
                return False
            with self._stored():
                with draft.open("wb") as file:
                    self.prefix.download(name, file)
                self.num_new_bytes += draft.stat().st_size
                draft.replace(path)
        if not self.is_measured or self.num_new_bytes > self.limit_bytes // SCAN_SHARE:
            evict(self.cache, self.limit_bytes, besides=path)
            self.num_new_bytes, self.is_measured = 0, True
        return True

    @contextmanager
    def _stored(self) -> Iterator[None]:
        """Turn errors of the disk into DirectoryAway: another worker may have space."""
        try:
            yield
        except (DataError, DirectoryAway):
            raise
        except OSError as error:
            problem = f"{self.prefix} cannot be copied to {self.cache}: {error.strerror}"
            raise DirectoryAway(problem) from error


@contextmanager
def locked(path: Path, kind: int) -> Iterator[bool]:
    """Hold a lock on a file within the block; False where it does not exist or is not free.

    Raises DirectoryAway where the file system has no locks.
    """
    try:
        # NFS gives exclusive locks only for writing.
        descriptor = os.open(path, os.O_RDWR if kind & fcntl.LOCK_EX else os.O_RDONLY)
    except FileNotFoundError:
        yield False
        return
    try:
        yield _is_locked(descriptor, path, kind)
    finally:
        os.close(descriptor)


def evict(cache: Path, limit_bytes: int, *, besides: Path | None = None) -> int:
    """Delete copies until the rest fit; return how many bytes are left.

    Those of the dataset that was not used for longest come first, in a random order: a training
    reads all files in turn, and the one that was not read for longest is the next. Copies and
    drafts in use stay, and so does `besides`.
    """
    datasets = sorted(cache.glob(f"*/{LOCK}"), key=lambda each: each.stat().st_mtime_ns)
    files = {each: list(_files(each.parent)) for each in datasets}
    left = sum(size for each in files.values() for _, size in each)
    if left <= limit_bytes:
        return left
    for lock in datasets:
        with locked(lock, fcntl.LOCK_EX | fcntl.LOCK_NB) as is_free:
            found = files[lock] if is_free else []
            random.shuffle(found)
            for path, size in found:
                if left <= limit_bytes * KEPT_SHARE:
                    return left
                if path != besides and _removed(path):
                    left -= size
    return left


def _files(folder: Path) -> Iterator[tuple[Path, int]]:
    for top in (FILES, DRAFTS):
        for parent, _, names in os.walk(folder / top):
            for name in names:
                path = Path(parent, name)
                try:
                    yield path, path.stat().st_size
                except FileNotFoundError:
                    continue


def _removed(path: Path) -> bool:
    with locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB) as is_free:
        if is_free:
            path.unlink(missing_ok=True)
        return is_free


def _is_locked(descriptor: int, path: Path, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind)
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except (BlockingIOError, FileNotFoundError):
        return False
    except OSError as error:
        raise DirectoryAway(f"{path} cannot be locked: {error.strerror}") from error
