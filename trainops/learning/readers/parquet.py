"""Rows of Parquet files: an index of the row groups, and the few that were read latest."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor
from torch.utils.data import Dataset

from trainops.datasets.directory import Directory
from trainops.datasets.errors import DataError
from trainops.learning.readers.opened import Opened

Row = dict[str, Any]
MAX_OPEN = 16


class ParquetRows(Dataset[Row]):
    """Rows of a Parquet file, or of all Parquet files of a directory: {column: value}.

    Only row groups are read, whole; `cached_groups` of them are kept. So memory follows the size
    of a row group, and a random order reads a group for almost every row: `order` is a shuffled
    one that reads few. All files must have the same columns. Raises DataError.
    """

    def __init__(
        self,
        path: Directory | Path | str,
        columns: Sequence[str] | None = None,
        *,
        cached_groups: int = 4,
    ) -> None:
        if cached_groups < 1:
            raise DataError(f"got cached_groups {cached_groups}; allowed: at least 1")
        self.directory = Directory.of(path)
        self.columns: list[str] = list(columns or ())
        self.schema: Any = None  # a pyarrow.Schema
        lengths: list[int] = []
        groups: list[tuple[int, int]] = []
        for file in self.directory.data_files():
            for number, length in enumerate(self._group_lengths(file, columns)):
                groups.append((file, number))
                lengths.append(length)
        self._groups = np.array(groups, np.int64).reshape(-1, 2)
        self._ends = np.cumsum(lengths, dtype=np.int64)
        self._files = Opened(self._open, MAX_OPEN, pq.ParquetFile.close)
        self._tables = Opened(self._read, cached_groups)
        if not len(self):
            raise DataError(f"{self.directory.root} holds no row")

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    @property
    def num_groups(self) -> int:
        return len(self._groups)

    def __getitem__(self, index: int) -> Row:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Row]:
        rows: list[Row] = self.batch(indices).to_pylist()
        return rows

    def batch(self, indices: Sequence[int]) -> pa.Table:
        """Return the rows at these indices as a table, in this order."""
        wanted = np.asarray(indices, np.int64)
        if not (len(wanted) and wanted.min() >= 0 and wanted.max() < len(self)):
            raise IndexError(f"got {list(indices)[:5]}; allowed: rows 0 to {len(self) - 1}")
        groups = np.searchsorted(self._ends, wanted, side="right")
        pieces, places = [], []
        for group in np.unique(groups):
            chosen = np.flatnonzero(groups == group)
            first, _ = self._range(int(group))
            pieces.append(self._table(int(group)).take(pa.array(wanted[chosen] - first)))
            places.append(chosen)
        order = np.argsort(np.concatenate(places), kind="stable")
        return pa.concat_tables(pieces).take(pa.array(order))

    def order(self, seed: int, number: int, *, groups_at_once: int | None = None) -> Tensor:
        """Return a shuffled order of all rows that reads each row group once.

        It is a function of its arguments: `number` is that of the pass. The groups are shuffled,
        and so are the rows of each `groups_at_once` that follow each other (by default as many as
        are kept).
        """
        rng = np.random.default_rng([seed % 2**63, number])
        at_once = groups_at_once or self._tables.most
        shuffled = rng.permutation(self.num_groups)
        order, done = np.empty(len(self), np.int64), 0
        for first in range(0, len(shuffled), at_once):
            ranges = [self._range(int(each)) for each in shuffled[first : first + at_once]]
            rows = rng.permutation(np.concatenate([np.arange(*each) for each in ranges]))
            order[done : done + len(rows)] = rows
            done += len(rows)
        return torch.from_numpy(order)

    def _range(self, group: int) -> tuple[int, int]:
        """Return the first row of a group, and the one after its last."""
        return int(self._ends[group - 1]) if group else 0, int(self._ends[group])

    def _table(self, group: int) -> pa.Table:
        with self.directory.reading(int(self._groups[group, 0])):
            return self._tables.get(group)

    def _read(self, group: int) -> pa.Table:
        file, number = self._groups[group].tolist()
        path = self.directory.root / self.directory.name(file)
        try:
            opened = self._files.get(file)
            return opened.read_row_group(number, columns=self.columns, use_threads=False)
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{path}: row group {number} cannot be read: {error}") from error

    def _group_lengths(self, file: int, columns: Sequence[str] | None) -> list[int]:
        path = self.directory.root / self.directory.name(file)
        with self.directory.reading(file):
            try:
                footer = pq.read_metadata(path)
            except (OSError, pa.ArrowException) as error:
                raise DataError(f"{path} is no complete Parquet file: {error}") from error
        schema = footer.schema.to_arrow_schema()
        self._require_columns(path, schema, columns)
        return [footer.row_group(n).num_rows for n in range(footer.num_row_groups)]

    def _require_columns(
        self, path: Path, schema: pa.Schema, columns: Sequence[str] | None
    ) -> None:
        if missing := [each for each in columns or () if each not in schema.names]:
            known = ", ".join(schema.names)
            raise DataError(f"{path} has no column {', '.join(missing)}; allowed: {known}")
        self.schema, self.columns = self.schema or schema, self.columns or schema.names
        for name in self.columns:
            other = schema.field(name).type if name in schema.names else "missing"
            if other != self.schema.field(name).type:
                problem = f"{name} is {other} in {path}, {self.schema.field(name).type} before"
                raise DataError(f"{problem}; allowed: the same columns in all files")

    def _open(self, file: int) -> pq.ParquetFile:
        return pq.ParquetFile(self.directory.root / self.directory.name(file), pre_buffer=False)
