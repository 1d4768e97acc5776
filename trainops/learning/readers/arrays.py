"""Arrays of NPY and NPZ files, read row by row."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from trainops.datasets.directory import Directory, unreadable
from trainops.datasets.errors import DataError
from trainops.learning.readers.opened import Opened, read_at, require_index

LOCAL_HEADER = 30  # bytes of a ZIP member's, before its name and its extra field
MAX_OPEN = 64


@dataclass(frozen=True, slots=True)
class StoredArray:
    """An array in a file: `file` is its position in the directory, `offset` its first byte."""

    name: str
    file: int
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def row_bytes(self) -> int:
        return self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))


class ArrayRows(Dataset[dict[str, Tensor]]):
    """Row `index` of every array, by the names of the arrays, read when it is asked for.

    `path` is an NPY file, an NPZ file written by numpy.savez (not savez_compressed), or a directory
    of them; arrays of a directory are named by their files. All must have the same length. Arrays
    of objects and in Fortran order are refused. Raises DataError.
    """

    def __init__(self, path: Directory | Path | str) -> None:
        self.directory = Directory.of(path)
        self.arrays: list[StoredArray] = []
        for index in self.directory.data_files():
            with self.directory.reading(index) as file:
                self.arrays += _arrays(file, index)
        self._require_same_lengths()
        self._files = Opened(self._open, MAX_OPEN, os.close)

    def __len__(self) -> int:
        return self.arrays[0].shape[0]

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        require_index(index, len(self))
        return {each.name: self._row(each, index) for each in self.arrays}

    def _row(self, array: StoredArray, index: int) -> Tensor:
        with self.directory.reading(array.file) as path:
            start = array.offset + index * array.row_bytes
            try:
                content = read_at(self._files.get(array.file), start, array.row_bytes)
            except EOFError as error:
                raise DataError(f"{path} is cut off at row {index}: {error}") from error
        row = np.frombuffer(content, array.dtype).reshape(array.shape[1:])
        return torch.from_numpy(row.astype(array.dtype.newbyteorder("=")))

    def _open(self, index: int) -> int:
        return os.open(self.directory.root / self.directory.name(index), os.O_RDONLY)

    def _require_same_lengths(self) -> None:
        root = self.directory.root
        names = [each.name for each in self.arrays]
        if len(set(names)) < len(names):
            raise DataError(f"{root} holds several arrays of one name: {', '.join(names)}")
        lengths = {each.name: each.shape[0] for each in self.arrays}
        if len(set(lengths.values())) != 1:
            found = ", ".join(f"{name} has {length} rows" for name, length in lengths.items())
            problem = found or "no array"
            raise DataError(f"{root} holds {problem}; allowed: arrays of the same length")


def _arrays(path: Path, index: int) -> Iterator[StoredArray]:
    size = path.stat().st_size
    if path.suffix.lower() == ".npy":
        with path.open("rb") as file:
            yield _described(path, path.stem, index, file, 0, size)
        return
    if path.suffix.lower() != ".npz":
        raise DataError(f"{path} is neither NPY nor NPZ")
    try:
        with ZipFile(path) as archive, path.open("rb") as file:
            for member in archive.infolist():
                if member.compress_type != ZIP_STORED:
                    name = member.filename
                    problem = f"{path} holds the compressed member {name}"
                    raise DataError(f"{problem}; allowed: numpy.savez, not savez_compressed")
                start = _content(file, member.header_offset)
                name = Path(member.filename).stem
                yield _described(path, name, index, file, start, start + member.file_size)
    except BadZipFile as error:
        raise DataError(f"{path} is no complete NPZ file: {error}") from error


def _content(file: IO[bytes], header_offset: int) -> int:
    """Return the offset of a ZIP member's first byte."""
    file.seek(header_offset + 26)
    lengths = np.frombuffer(file.read(4), "<u2")
    return header_offset + LOCAL_HEADER + int(lengths.sum())


def _described(
    path: Path, name: str, index: int, file: IO[bytes], start: int, end: int
) -> StoredArray:
    file.seek(start)
    try:
        version = np.lib.format.read_magic(file)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, is_fortran, dtype = read(file)
    except (ValueError, KeyError) as error:
        raise unreadable(path, error) from error
    found = StoredArray(name, index, file.tell(), shape, dtype)
    if is_fortran and len(shape) > 1:
        raise DataError(f"{path}: {name} is in Fortran order; allowed: C order")
    if dtype.kind not in "biufc" or not shape:
        raise DataError(f"{path}: {name} is {dtype} {shape}; allowed: rows of numbers")
    if found.offset + shape[0] * found.row_bytes > end:
        raise DataError(f"{path} is cut off: {name} is {dtype} {shape}, the file is shorter")
    return found
