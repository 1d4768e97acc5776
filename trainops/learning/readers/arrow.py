"""Rows of a Hugging Face dataset that was saved to disk, read without the `datasets` package."""

import json
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
from torch.utils.data import Dataset

from trainops.datasets.directory import Directory
from trainops.datasets.errors import MAX_NAMED, DataError
from trainops.learning.readers.opened import Opened, require_index

Row = dict[str, Any]
STATE = "state.json"
MAX_OPEN = 64


class ArrowRows(Dataset[Row]):
    """Rows of what `Dataset.save_to_disk` wrote: {column: value}.

    Of a `DatasetDict`, `folder` is the split, such as "train".

    The Arrow files are mapped into memory, so pages that were read are the system's cache.
    Refused: datasets that were filtered or shuffled by indices (`flatten_indices` writes them out).
    Images and audio are the bytes of their files. Raises DataError.
    """

    def __init__(self, path: Directory | Path | str, folder: str = "") -> None:
        self.directory = Directory.of(path)
        prefix = f"{folder.strip('/')}/" if folder.strip("/") else ""
        numbers = {self.directory.name(n): n for n in range(len(self.directory))}
        if f"{prefix}{STATE}" not in numbers:
            problem = f"{self.directory.root / folder} has no {STATE}"
            raise DataError(f"{problem}; allowed: {self._allowed()}")
        state = self._state(numbers[f"{prefix}{STATE}"])
        names = [f"{prefix}{each['filename']}" for each in state["_data_files"]]
        if missing := [each for each in names if each not in numbers]:
            raise DataError(f"{self.directory.root} lacks {', '.join(missing[:5])}")
        self._numbers = [numbers[each] for each in names]
        self._tables = Opened(self._mapped, MAX_OPEN)
        lengths = [self._table(each).num_rows for each in range(len(names))]
        self._ends = np.cumsum(lengths, dtype=np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, index: int) -> Row:
        require_index(index, len(self))
        file = int(np.searchsorted(self._ends, index, side="right"))
        row = index - (int(self._ends[file - 1]) if file else 0)
        rows: list[Row] = self._table(file).slice(row, 1).to_pylist()
        return rows[0]

    def _allowed(self) -> str:
        """Return what can be read: folders with a split, where there are some."""
        paths = [PurePosixPath(self.directory.name(n)) for n in range(len(self.directory))]
        splits = [str(each.parent) for each in paths if each.name == STATE]
        named = ", ".join(f'folder="{each}"' for each in splits[:MAX_NAMED])
        return named or "a directory written by Dataset.save_to_disk"

    def _table(self, file: int) -> pa.Table:
        with self.directory.reading(self._numbers[file]):
            return self._tables.get(file)

    def _mapped(self, file: int) -> pa.Table:
        path = self.directory.root / self.directory.name(self._numbers[file])
        try:
            return pa.ipc.open_stream(pa.memory_map(str(path))).read_all()
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{path} is no complete Arrow file: {error}") from error

    def _state(self, index: int) -> dict[str, Sequence[dict[str, str]]]:
        with self.directory.reading(index) as path:
            state: dict[str, Any] = json.loads(path.read_text())
        if state.get("_indices_files") or state.get("_indices_data_files"):
            raise DataError(f"{path} has indices; allowed: a dataset after flatten_indices()")
        return state
