"""The manifest of a directory: names, sizes and digests, as one Parquet file.

A digest is a BLAKE3 of a block of 64 MiB, so that a sample of a large file can be verified.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from blake3 import blake3
from numpy.typing import NDArray

from trainops.datasets.errors import DataError, changed
from trainops.datasets.files import FoundFile

BLOCK_BYTES = 64 * 2**20
PIECE_BYTES = 2**20
NUM_THREADS, BATCH = 8, 1024
SCHEMA = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("digests", pa.list_(pa.binary(32)), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Manifest:
    """Files in the order of their names; `digests` has a list for each file."""

    names: pa.StringArray
    sizes: NDArray[np.int64]
    digests: pa.ListArray

    def __len__(self) -> int:
        return len(self.names)

    def digests_of(self, index: int) -> list[bytes]:
        found: list[bytes] = self.digests[index].as_py()
        return found

    def index(self, name: str) -> int:
        """Return the place of a file, or -1."""
        low, high = 0, len(self.names)
        while low < high:
            middle = (low + high) // 2
            if self.names[middle].as_py() < name:
                low = middle + 1
            else:
                high = middle
        is_there = low < len(self.names) and self.names[low].as_py() == name
        return low if is_there else -1

    def write(self, path: Path) -> None:
        """Write it; the same files give the same bytes."""
        columns = [self.names, pa.array(self.sizes), self.digests]
        pq.write_table(pa.table(columns, schema=SCHEMA), path, compression="zstd")

    @classmethod
    def read(cls, path: Path) -> Self:
        table = pq.read_table(path).combine_chunks()
        if table.schema.names != SCHEMA.names:
            raise DataError(f"{path.name} is no manifest of a directory")
        names, sizes, digests = (_whole(table[name]) for name in SCHEMA.names)
        return cls(names, sizes.to_numpy(), digests)


def make(root: Path, found: list[FoundFile]) -> Manifest:
    """Read every file below `root`; return their manifest. Raises DataError."""
    return of_digests(found, partial(_digests_of, root))


def of_digests(found: list[FoundFile], digests_of: Callable[[FoundFile], list[bytes]]) -> Manifest:
    """Return the manifest of files whose digests a function returns, called in several threads."""
    digests: list[list[bytes]] = []
    with ThreadPoolExecutor(NUM_THREADS) as threads:
        for first in range(0, len(found), BATCH):
            digests += threads.map(digests_of, found[first : first + BATCH])
    return Manifest(
        pa.array([each.name for each in found], pa.string()),
        np.array([each.size_bytes for each in found], np.int64),
        pa.array(digests, SCHEMA.field("digests").type),
    )


def num_blocks(size_bytes: int) -> int:
    return -(-size_bytes // BLOCK_BYTES)


def block_digest(file: BinaryIO, number: int) -> bytes:
    """Return the digest of a block of an open file."""
    file.seek(number * BLOCK_BYTES)
    left, hasher = BLOCK_BYTES, blake3()
    while left and (piece := file.read(min(left, PIECE_BYTES))):
        hasher.update(piece)
        left -= len(piece)
    return hasher.digest()


def differences(registered: Manifest, found: Iterable[FoundFile]) -> Iterator[str]:
    """Yield what differs in names and sizes, in the order of the names."""
    position = 0
    for each in found:
        while position < len(registered) and registered.names[position].as_py() < each.name:
            yield f"{registered.names[position]} is missing"
            position += 1
        if position == len(registered) or registered.names[position].as_py() != each.name:
            yield f"{each.name} is new"
            continue
        if registered.sizes[position] != each.size_bytes:
            size = registered.sizes[position]
            yield f"{each.name} has {each.size_bytes} bytes instead of {size}"
        position += 1
    for rest in range(position, len(registered)):
        yield f"{registered.names[rest]} is missing"


def _digests_of(root: Path, found: FoundFile) -> list[bytes]:
    path = root / found.name
    try:
        with path.open("rb", buffering=0) as file:
            digests = [block_digest(file, each) for each in range(num_blocks(found.size_bytes))]
            status = os.fstat(file.fileno())
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    if (status.st_size, status.st_ctime_ns) != (found.size_bytes, found.changed_ns):
        raise changed(root, [f"{found.name} changed while it was read"])
    return digests


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
