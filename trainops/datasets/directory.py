"""A directory of data, as readers see it: names of files, and a check around each reading.

A registered directory is verified when it is opened: all names and sizes, and a sample of the
digests. A file that changed since the registration is compared with its digests before it is read,
and again whenever it changes.

Of a prefix in a bucket, the files are copies on this machine, which are downloaded when they are
read and compared with the digests.
"""

import random
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trainops.checkpoint_storage import parse
from trainops.datasets import manifest as manifests
from trainops.datasets.errors import (
    MAX_NAMED,
    DataError,
    DirectoryAway,
    DirectoryChanged,
    changed,
)
from trainops.datasets.files import is_data, scan
from trainops.datasets.location import Location
from trainops.datasets.manifest import Manifest

if TYPE_CHECKING:
    from trainops.datasets.copies import Copies

SAMPLE_BLOCKS = 32


class Directory:
    """The files below `root`, by their position in the order of the names.

    With `copies`, `root` holds copies of some of the files, and each one while it is read.
    """

    def __init__(
        self,
        root: Path,
        names: pa.StringArray,
        manifest: Manifest | None = None,
        *,
        since_ns: int,
        copies: "Copies | None" = None,
    ) -> None:
        self.root, self.names, self._copies = root, names, copies
        self._manifest, self._since_ns = manifest, since_ns
        self._is_one_file = False  # given by its path
        self._checked_ns = np.zeros(len(names) if manifest is not None else 0, np.int64)

    @classmethod
    def of(cls, path: "Directory | str | Path") -> "Directory":
        """Return the directory at a path, or one file as a directory of one. Raises DataError."""
        if isinstance(path, Directory):
            return path
        root = Path(path)
        if root.is_file():
            found = cls(root.parent, pa.array([root.name], pa.string()), since_ns=0)
            found._is_one_file = True
            return found
        names = pa.array([each.name for each in scan(root)], pa.string())
        return cls(root, names, since_ns=0)

    @classmethod
    def open(cls, location: Path, seed: int) -> Self:
        """Return a registered directory, verified: names, sizes, and blocks drawn by the seed.

        Of a prefix in a bucket, the blocks are of objects that were written since the registration.
        Raises DirectoryChanged, which names the first files that differ, DirectoryAway where there
        is none, and DataError.
        """
        given = Location.read(location)
        if given.source:
            return cls._of_prefix(given, seed)
        registered = Manifest.read(Path(given.manifest))
        root = Path(given.root)
        found_files = scan(root)
        if not found_files and len(registered):
            raise DirectoryAway(f"{root} is empty on this machine: is it mounted?")
        if problems := list(manifests.differences(registered, found_files)):
            raise changed(root, problems)
        found = cls(root, registered.names, registered, since_ns=given.changed_ns)
        found._verify_sample(seed)
        return found

    @classmethod
    def _of_prefix(cls, given: Location, seed: int) -> Self:
        # boto3 is loaded for buckets only.
        from trainops.datasets.copies import Copies  # noqa: PLC0415
        from trainops.datasets.objects import Prefix  # noqa: PLC0415

        registered, prefix = Manifest.read(Path(given.manifest)), Prefix(parse(given.source))
        listed = prefix.found()
        if problems := list(manifests.differences(registered, listed)):
            raise changed(prefix, problems)
        is_recent = np.array([each.changed_ns >= given.changed_ns for each in listed], bool)
        for index, block in drawn_blocks(np.where(is_recent, registered.sizes, 0), seed):
            if prefix.block_digest(listed[index], block) != registered.digests_of(index)[block]:
                raise changed(prefix, [f"{listed[index].name} has another content"])
        copies = Copies(prefix, Path(given.cache), given.dataset_id, given.cache_bytes)
        copies.touch()
        return cls(Path(given.root), registered.names, registered, since_ns=0, copies=copies)

    @property
    def place(self) -> str:
        """The path of the directory or the URL of the prefix."""
        return str(self.root if self._copies is None else self._copies.prefix)

    def __len__(self) -> int:
        return len(self.names)

    def name(self, index: int) -> str:
        return str(self.names[index].as_py())

    def data_files(self, folder: str = "") -> list[int]:
        """Return the positions of the files of data in a folder ("": all): what readers read.

        Readmes, licences, hidden files and the like are none, unless the directory is one file
        that was given by its path. Raises DataError for none.
        """
        files = self.below(folder)
        found = files if self._is_one_file else [n for n in files if is_data(self.name(n))]
        if not found:
            first = ", ".join(self.name(n) for n in files[:MAX_NAMED])
            problem = f"{self.root / folder} has no files of data: {first} are about the data"
            raise DataError(f"{problem}; allowed: names without a dot before, no readmes, licences")
        return found

    def below(self, folder: str) -> list[int]:
        """Return the positions of the files in a folder ("": all). Raises DataError for none."""
        prefix = f"{folder.strip('/')}/" if folder.strip("/") else ""
        found = [n for n in range(len(self)) if self.name(n).startswith(prefix)]
        if not found:
            raise DataError(f"{self.root / folder} has no files")
        return found

    def unchanged(self) -> Path:
        """Check every file; return `root`, for a library that reads the files by itself.

        Copies of the objects of a prefix stay there until the process ends. Raises
        DirectoryChanged, DirectoryAway and DataError, also where the cache is too small for them.
        """
        if self._copies is not None and self._manifest is not None:
            self._copies.keep_all(int(self._manifest.sizes.sum()))
        for index in range(len(self)):
            with self.reading(index):
                pass
        return self.root

    @contextmanager
    def reading(self, index: int) -> Iterator[Path]:
        """Read a file within the block, from the path that it gets.

        Raises DirectoryChanged where the file is not what was registered, also if it changes while
        it is read; DirectoryAway where all files are gone, or the bucket does not answer; DataError
        where it cannot be read.
        """
        path = self.root / self.name(index)
        with self._held(index, path):
            self._check(index, path)
            try:
                yield path
            except (OSError, EOFError, ValueError) as error:
                self._check(index, path)
                is_clear = isinstance(error, DataError | DirectoryAway)
                raise error if is_clear else self._problem(index, error) from error
            self._check(index, path)

    def _held(self, index: int, path: Path) -> AbstractContextManager[None]:
        if self._copies is None:
            return nullcontext()
        return self._copies.held(self.name(index), partial(self._is_intact, index, path))

    def _is_intact(self, index: int, path: Path) -> bool:
        try:
            self._check(index, path)
        except DirectoryChanged:
            return False
        return True

    def _check(self, index: int, path: Path) -> None:
        if self._manifest is None:
            return
        try:
            status = path.stat()
        except OSError as error:
            raise self._problem(index, error) from error
        if status.st_ctime_ns == self._checked_ns[index]:
            return
        if status.st_size != self._manifest.sizes[index]:
            size = self._manifest.sizes[index]
            problem = f"{self.name(index)} has {status.st_size} bytes instead of {size}"
            raise changed(self.place, [problem])
        if status.st_ctime_ns >= self._since_ns:
            self._compare(index, range(manifests.num_blocks(status.st_size)))
        self._checked_ns[index] = status.st_ctime_ns

    def _problem(self, index: int, error: Exception) -> DataError | DirectoryAway:
        """Return the error for a file that could not be read.

        A directory that is gone, empty or does not answer, as an unmounted one, is away; so is a
        copy that was deleted while it was read.
        """
        if self._copies is not None and isinstance(error, FileNotFoundError):
            copy = self.root / self.name(index)
            return DirectoryAway(f"{copy}, the copy of a file of {self.place}, was deleted")
        try:
            is_here = next(self.root.iterdir(), None) is not None
        except OSError:
            is_here = False
        if not is_here:
            return DirectoryAway(f"{self.root} is not on this machine any more: is it mounted?")
        if isinstance(error, FileNotFoundError):
            return changed(self.root, [f"{self.name(index)} is missing"])
        return unreadable(self.root / self.name(index), error)

    def _compare(self, index: int, blocks: Sequence[int]) -> None:
        """Raise DirectoryChanged unless these blocks have the registered digests."""
        if self._manifest is None:
            return
        expected = self._manifest.digests_of(index)
        try:
            with (self.root / self.name(index)).open("rb", buffering=0) as file:
                found = {each: manifests.block_digest(file, each) for each in blocks}
        except OSError as error:
            raise self._problem(index, error) from error
        if any(expected[each] != digest for each, digest in found.items()):
            raise changed(self.place, [f"{self.name(index)} has another content"])

    def _verify_sample(self, seed: int) -> None:
        """Compare blocks of all files alike, whichever they are of."""
        if self._manifest is None:
            return
        for index, block in drawn_blocks(self._manifest.sizes, seed):
            self._compare(index, [block])


def drawn_blocks(sizes: NDArray[np.int64], seed: int) -> Iterator[tuple[int, int]]:
    """Yield up to 32 blocks of files of these sizes, as (position of the file, block)."""
    ends = np.cumsum(-(-sizes // manifests.BLOCK_BYTES))
    total = int(ends[-1]) if len(ends) else 0
    for number in sorted(random.Random(seed).sample(range(total), min(SAMPLE_BLOCKS, total))):
        index = int(np.searchsorted(ends, number, side="right"))
        yield index, number - (int(ends[index - 1]) if index else 0)


def unreadable(path: Path, error: Exception) -> DataError:
    """Return the error that names a file which cannot be read."""
    why = (isinstance(error, OSError) and error.strerror) or f"{type(error).__name__}: {error}"
    return DataError(f"{path} cannot be read: {why}")
