"""Rows that are only ever appended: an equity curve, trades, the transitions of a replay buffer.

A part of a job's state that grows with the run is a stream. Its rows lie in segments of one size;
a full segment never changes, so freezing a stream copies only the rows after the last full one,
and what one checkpoint wrote of it the next ones refer to.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor

Columns: TypeAlias = Mapping[str, tuple[torch.dtype, tuple[int, ...]]]  # type, shape of one row
Segment: TypeAlias = dict[str, Tensor]

SEGMENT_BYTES = 2**18
GROUP = 16  # so many full segments share a file: fewer files, and each is written once more


class Stream:
    """Columns of equal length, by name; `columns` gives each its type and the shape of a row.

    Rows count from 0 and keep their number; the oldest may be forgotten. `segment_bytes` is about
    how much is written again with every checkpoint.
    """

    def __init__(self, columns: Columns, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        # A name is one and the same string wherever it stands: an archive writes a second one anew,
        # so that its bytes would tell which of its segments were read from another.
        self.columns = {
            sys.intern(name): (dtype, tuple(shape)) for name, (dtype, shape) in columns.items()
        }
        row_bytes = sum(
            torch.empty(shape, dtype=dtype, device="meta").nbytes
            for dtype, shape in self.columns.values()
        )
        # A power of two, so that it follows from the columns alone.
        fitting = max(1, segment_bytes // max(1, row_bytes))
        self.segment_rows: int = 1 << (fitting.bit_length() - 1)
        self.first_segment = 0  # that is still here
        self.sealed: list[Segment] = []  # full ones, never to be changed
        self._open = self._new_segment()
        self._open_rows = 0

    @property
    def first_row(self) -> int:
        """The number of the oldest row that is still here."""
        return self.first_segment * self.segment_rows

    @property
    def end_segment(self) -> int:
        """The number of the segment that is not full yet."""
        return self.first_segment + len(self.sealed)

    def __len__(self) -> int:
        """Return how many rows were ever appended."""
        return self.end_segment * self.segment_rows + self._open_rows

    def append(self, rows: Mapping[str, object]) -> None:
        """Append rows: a tensor or NumPy array by the name of each column, all of one length.

        Raises:
            ValueError: the columns are others, of other shapes or of different lengths.
        """
        given = {name: torch.as_tensor(values) for name, values in rows.items()}
        count = self._require_rows(given)
        done = 0
        while done < count:
            size = min(count - done, self.segment_rows - self._open_rows)
            for name, values in given.items():
                target = self._open[name][self._open_rows : self._open_rows + size]
                target.copy_(values[done : done + size])
            self._open_rows += size
            done += size
            if self._open_rows == self.segment_rows:
                self._seal()

    def forget(self, before_row: int) -> None:
        """Let the full segments go that lie wholly before a row."""
        num_segments = min(len(self.sealed), before_row // self.segment_rows - self.first_segment)
        if num_segments > 0:
            del self.sealed[:num_segments]
            self.first_segment += num_segments

    def column(self, name: str, first: int = 0) -> Tensor:
        """Return a copy of one column, from row `first`, or `first_row`, to the end."""
        skipped = max(0, first // self.segment_rows - self.first_segment)
        segments = [segment[name] for segment in self.sealed[skipped:]]
        rows = torch.cat([*segments, self._open[name][: self._open_rows]])
        return rows[max(0, first - self.first_row - skipped * self.segment_rows) :]

    def copy(self) -> "Stream":
        """Return an independent stream of the same rows; the full segments are shared."""
        other = Stream.__new__(Stream)
        other.columns, other.segment_rows = self.columns, self.segment_rows
        other.first_segment, other.sealed = self.first_segment, list(self.sealed)
        other._open, other._open_rows = other._new_segment(), self._open_rows
        for name, values in self._tail().items():
            other._open[name][: self._open_rows] = values
        return other

    def continues(self, earlier: object) -> bool:
        """Whether this is an earlier stream, or a copy of it, with rows appended and forgotten."""
        if not isinstance(earlier, Stream) or self.first_segment > earlier.end_segment:
            return False
        if (self.columns, self.segment_rows) != (earlier.columns, earlier.segment_rows):
            return False
        skipped = self.first_segment - earlier.first_segment
        if skipped < 0 or len(self.sealed) < len(earlier.sealed) - skipped:
            return False
        return all(map(_is, self.sealed, earlier.sealed[skipped:]))

    def archives(self, part: str) -> Iterator[tuple[str, object]]:
        """Yield what the part of this name is written as: file names and what each one holds.

        Once 16 segments are full, they move into one file, so each row is written twice, apart
        from the time that it was in the open segment.
        """
        for first, count in grouped(self.first_segment, self.end_segment):
            start = first - self.first_segment
            yield f"{part}-{first}x{count}.pt", self.sealed[start : start + count]
        yield (
            tail_name(part),
            {
                "segment_rows": self.segment_rows,
                "first_segment": self.first_segment,
                "end_segment": self.end_segment,
                "rows": {name: values.clone() for name, values in self._tail().items()},
            },
        )

    @classmethod
    def from_archives(cls, part: str, archives: Mapping[str, Any]) -> "Stream":
        """Return the stream that `archives` was written from. Raises ValueError, LookupError."""
        tail = archives[tail_name(part)]
        rows: Segment = tail["rows"]
        stream = cls({name: (each.dtype, tuple(each.shape[1:])) for name, each in rows.items()})
        stream.segment_rows = int(tail["segment_rows"])
        stream.first_segment = int(tail["first_segment"])
        for first, count in grouped(stream.first_segment, int(tail["end_segment"])):
            segments = archives[f"{part}-{first}x{count}.pt"]
            if len(segments) != count:
                raise ValueError(f"{part}: {len(segments)} segments where {count} are named")
            for segment in segments:
                if stream._require_rows(segment) != stream.segment_rows:
                    raise ValueError(f"{part}: a segment is not full")
            stream.sealed += [{name: each[name] for name in stream.columns} for each in segments]
        if len(archives) != 1 + sum(1 for _ in grouped(stream.first_segment, stream.end_segment)):
            raise ValueError(f"{part}: there are files of segments that it does not have")
        if stream._require_rows(rows) >= stream.segment_rows:
            raise ValueError(f"{part}: the open segment is full")
        stream._open = stream._new_segment()
        stream.append(rows)
        return stream

    def _seal(self) -> None:
        self.sealed.append(self._open)
        self._open, self._open_rows = self._new_segment(), 0

    def _tail(self) -> Segment:
        return {name: values[: self._open_rows] for name, values in self._open.items()}

    def _new_segment(self) -> Segment:
        return {
            name: torch.empty((self.segment_rows, *shape), dtype=dtype)
            for name, (dtype, shape) in self.columns.items()
        }

    def _require_rows(self, rows: Mapping[str, Tensor]) -> int:
        """Return how many rows these are. Raises ValueError unless they are this stream's."""
        if rows.keys() != self.columns.keys():
            raise ValueError(
                f"columns {', '.join(sorted(rows))}; allowed: {', '.join(sorted(self.columns))}"
            )
        for name, values in rows.items():
            dtype, shape = self.columns[name]
            if values.dtype != dtype or tuple(values.shape[1:]) != shape or not values.ndim:
                raise ValueError(
                    f"column {name} is {values.dtype} {tuple(values.shape)}; "
                    f"allowed: {dtype} {('rows', *shape)}"
                )
        lengths = {len(values) for values in rows.values()}
        if len(lengths) > 1:
            raise ValueError(f"columns of different lengths: {sorted(lengths)}")
        return lengths.pop() if lengths else 0


def tail_name(part: str) -> str:
    return f"{part}-tail.pt"


def grouped(first: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield (first, count) of the files that segments from `first` to before `end` lie in.

    As long as both ends only grow, a group that is whole stays the same file.
    """
    while first < end:
        count = GROUP if first % GROUP == 0 and first + GROUP <= end else 1
        yield first, count
        first += count


def part_of(file_name: str) -> str:
    """Return the name of the part that a checkpoint's file belongs to."""
    return file_name.removesuffix(".pt").partition("-")[0]


def is_of_stream(file_names: Iterable[str]) -> bool:
    """Whether files of one part are those of a stream."""
    return any("-" in name for name in file_names)


def _is(one: object, other: object) -> bool:
    return one is other
