"""Lines of text files, and JSON values one a line."""

import json
import os
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from trainops.datasets.directory import Directory
from trainops.datasets.errors import DataError
from trainops.learning.readers.opened import Opened, read_at, require_index

T_co = TypeVar("T_co", covariant=True)
PIECE_BYTES = 2**20
MAX_OPEN = 64


class _Lines(Dataset[T_co]):
    """The lines of one or several files, in the order of the files' names.

    Where each line begins is found once, by reading the files from beginning to end: 8 bytes a
    line in memory. With `cache`, a directory, that is kept there for the next process.
    """

    suffixes: tuple[str, ...] = ()

    def __init__(self, path: Directory | Path | str, *, cache: Path | str | None = None) -> None:
        self.directory = Directory.of(path)
        self._numbers = self.directory.data_files()  # of the files, in the directory
        self._require_suffixes()
        starts = [self._starts(each, cache) for each in self._numbers]
        self._starts_of_files = starts  # of each line, and where the last one ends
        self._ends = np.cumsum([len(each) - 1 for each in starts])  # numbers of lines
        self._files = Opened(self._open, MAX_OPEN, os.close)
        if not len(self):
            raise DataError(f"{self.directory.root} holds no line")

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def place(self, index: int) -> str:
        """Return the file and the line of an example, for people: "a.jsonl, line 3"."""
        file, line = self._place(index)
        name = self.directory.name(self._numbers[file])
        return f"{self.directory.root / name}, line {line + 1}"

    def _text(self, index: int) -> str:
        file, line = self._place(index)
        start, end = self._starts_of_files[file][line : line + 2].tolist()
        number = self._numbers[file]
        with self.directory.reading(number):
            content = read_at(self._files.get(number), start, end - start)
        try:
            return content.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise DataError(f"{self.place(index)} is not UTF-8: {error}") from error

    def _place(self, index: int) -> tuple[int, int]:
        require_index(index, len(self))
        file = int(np.searchsorted(self._ends, index, side="right"))
        return file, index - (int(self._ends[file - 1]) if file else 0)

    def _starts(self, index: int, cache: Path | str | None) -> NDArray[np.int64]:
        with self.directory.reading(index) as path:
            if cache is None:
                return _line_starts(path)
            status = path.stat()
            key = f"{path}/{status.st_size}/{status.st_ctime_ns}/{status.st_ino}"
            kept = Path(cache) / f"lines-{blake2b(key.encode(), digest_size=16).hexdigest()}.npy"
            if not kept.exists():
                _keep(kept, _line_starts(path))
            found: NDArray[np.int64] = np.load(kept, allow_pickle=False)
            return found

    def _open(self, index: int) -> int:
        return os.open(self.directory.root / self.directory.name(index), os.O_RDONLY)

    def _require_suffixes(self) -> None:
        for index in self._numbers:
            path = self.directory.root / self.directory.name(index)
            if self.suffixes and path.suffix.lower() not in self.suffixes:
                raise DataError(f"got {path}; allowed: {', '.join(self.suffixes)}")


class TextLines(_Lines[str]):
    """Lines of UTF-8 text, without their ends. Raises DataError."""

    def __getitem__(self, index: int) -> str:
        return self._text(index)


class JsonLines(_Lines[Any]):
    """JSON values, one a line. Raises DataError, which names file and line."""

    suffixes = (".jsonl", ".ndjson", ".json")

    def __getitem__(self, index: int) -> Any:
        try:
            return json.loads(self._text(index))
        except json.JSONDecodeError as error:
            raise DataError(f"{self.place(index)} is not JSON: {error}") from error


def _line_starts(path: Path) -> NDArray[np.int64]:
    """Return where each line begins, and where the last one ends."""
    found = [np.zeros(1, np.int64)]
    size = 0
    for piece in _pieces(path):
        found.append(np.flatnonzero(np.frombuffer(piece, np.uint8) == ord("\n")) + size + 1)
        size += len(piece)
    starts = np.concatenate(found)
    return starts if starts[-1] == size else np.append(starts, size)


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while piece := file.read(PIECE_BYTES):
            yield piece


def _keep(path: Path, starts: NDArray[np.int64]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{token_hex(8)}.npy")  # containers may share the directory
    np.save(draft, starts)
    draft.replace(path)
