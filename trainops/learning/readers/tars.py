"""Tar shards, as WebDataset writes them: members of one name are an example."""

import json
import os
import tarfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from trainops.datasets.directory import Directory
from trainops.datasets.errors import DataError
from trainops.learning.readers.images import UNDECODABLE, cannot_decode, decode
from trainops.learning.readers.opened import Opened, read_at, require_index

Example = dict[str, Any]
BLOCK = 512  # of a tar file; two empty ones end it
MAX_OPEN = 64


class Member(NamedTuple):
    """A file in a shard: `key` up to the first dot of its name, and what follows it."""

    key: str
    part: str
    offset: int
    size: int


class Index(NamedTuple):
    """A shard: the keys of its examples and their first members; parts and places of members."""

    keys: pa.StringArray
    parts: pa.DictionaryArray
    places: NDArray[np.int64]  # shard, offset and size
    firsts: NDArray[np.int64]


class TarShards(Dataset[Example]):
    """Examples of one or several tar files: {"__key__": name, part: value}.

    Members that follow each other and have the same name up to the first dot are one example; the
    rest of the name is the part, which says how it is decoded: images as uint8 (C, H, W) in RGB,
    `json`, `txt`, `cls` as a number, `npy`; all others are bytes, and all without `is_decoded`.
    Where each member begins is found once, so that examples are read in any order. Raises
    DataError, also for a shard that was cut off.
    """

    def __init__(self, path: Directory | Path | str, *, is_decoded: bool = True) -> None:
        self.directory = Directory.of(path)
        self._is_decoded = is_decoded
        shards = [self._index(each) for each in self.directory.data_files()]
        self._keys = pa.concat_arrays([each.keys for each in shards])
        self._parts = pa.chunked_array([each.parts for each in shards]).combine_chunks()
        self._places = np.concatenate([each.places for each in shards])
        starts = np.cumsum([0, *(len(each.places) for each in shards)])
        firsts = [each.firsts + start for each, start in zip(shards, starts, strict=False)]
        self._firsts = np.concatenate([*firsts, starts[-1:]])
        if not len(self):
            raise DataError(f"{self.directory.root} holds no example")
        self._files = Opened(self._open, MAX_OPEN, os.close)

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, index: int) -> Example:
        require_index(index, len(self))
        example: Example = {"__key__": self._keys[index].as_py()}
        for member in range(self._firsts[index], self._firsts[index + 1]):
            part = self._parts[member].as_py()
            example[part] = self._value(example["__key__"], part, member)
        return example

    def _value(self, key: str, part: str, member: int) -> Any:
        shard, offset, size = self._places[member].tolist()
        with self.directory.reading(shard) as path:
            content = read_at(self._files.get(shard), offset, size)
        decoder = DECODERS.get(part.rpartition(".")[2].lower()) if self._is_decoded else None
        try:
            return content if decoder is None else decoder(content)
        except UNDECODABLE as error:
            raise cannot_decode(Path(f"{path}: {key}.{part}"), error) from error

    def _index(self, shard: int) -> "Index":
        with self.directory.reading(shard) as path:
            members = list(_members(path))
        names = [each.key for each in members]
        firsts = [n for n in range(len(names)) if n == 0 or names[n] != names[n - 1]]
        places = [(shard, each.offset, each.size) for each in members]
        return Index(
            pa.array([names[n] for n in firsts], pa.string()),
            pa.array([each.part for each in members], pa.string()).dictionary_encode(),
            np.array(places, np.int64).reshape(-1, 3),
            np.array(firsts, np.int64),
        )

    def _open(self, shard: int) -> int:
        return os.open(self.directory.root / self.directory.name(shard), os.O_RDONLY)


def _members(path: Path) -> Iterator[Member]:
    """Yield the files of a shard, by its headers alone."""
    end = 0
    try:
        with tarfile.open(path, "r:") as archive:
            while (each := archive.next()) is not None:
                archive.members.clear()  # type: ignore[attr-defined] # it would keep them all
                if each.isdir():
                    continue
                if not each.isreg() or each.sparse is not None:
                    raise DataError(f"{path} holds {each.name}; allowed: plain files")
                end = each.offset_data + each.size
                folder, _, name = each.name.rpartition("/")
                stem, _, part = name.partition(".")
                yield Member(f"{folder}/{stem}".lstrip("/"), part, each.offset_data, each.size)
    except tarfile.TarError as error:
        raise DataError(f"{path} is no whole, uncompressed tar file: {error}") from error
    _require_end(path, end)


def _require_end(path: Path, end: int) -> None:
    """Raise DataError unless two empty blocks follow the last member."""
    with path.open("rb") as file:
        file.seek(-(-end // BLOCK) * BLOCK)
        if file.read(2 * BLOCK) != bytes(2 * BLOCK):
            size = path.stat().st_size
            raise DataError(f"{path} is cut off: it ends at byte {size}, before the archive does")


def _array(content: bytes) -> Tensor:
    return torch.from_numpy(np.load(BytesIO(content), allow_pickle=False))


def _image(content: bytes) -> Tensor:
    return decode(BytesIO(content), "RGB")


DECODERS: dict[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(("png", "jpg", "jpeg", "webp", "bmp"), _image),
    "json": json.loads,
    "txt": bytes.decode,
    "cls": int,
    "npy": _array,
}
