"""A line for each finished epoch, in a stream: what a checkpoint writes of them is what is new."""

from collections.abc import Mapping
from typing import Any

import torch

from trainops.runtime.checkpoint.stream import Stream
from trainops.runtime.errors import IncompatibleState

SEGMENT_BYTES = 2**14  # of lines that every checkpoint writes again


class History:
    """The metrics of each finished epoch, by name; the line of epoch n, from 1, is row n - 1.

    A metric that an epoch does not have is NaN there.
    """

    def __init__(self, stream: Stream | None = None) -> None:
        self.stream = stream  # none before the first line, which tells the metrics' names

    def __len__(self) -> int:
        return len(self.stream) if self.stream is not None else 0

    def append(self, metrics: Mapping[str, float]) -> None:
        """Add the line of the next epoch. A metric that no line before had changes all of them."""
        stream = self.stream if self.stream is not None else _stream(metrics)
        if metrics.keys() - stream.columns.keys():
            stream = _widened(stream, metrics)
        row = {name: metrics.get(name, torch.nan) for name in stream.columns}
        stream.append({name: _doubles([value]) for name, value in row.items()})
        self.stream = stream

    def values(self, metric: str) -> list[float]:
        """Return one metric of every epoch; nothing where no epoch has it."""
        if self.stream is None or metric not in self.stream.columns:
            return []
        return self.stream.column(metric).tolist()

    def newest(self, count: int) -> list[dict[str, Any]]:
        """Return up to N lines, the newest last, each with its epoch."""
        if self.stream is None:
            return []
        first = max(0, len(self) - count)
        columns = [self.stream.column(name, first).tolist() for name in self.stream.columns]
        return [
            {"epoch": epoch, **dict(zip(self.stream.columns, line, strict=True))}
            for epoch, line in enumerate(zip(*columns, strict=True), first + 1)
        ]

    @classmethod
    def from_part(cls, part: object) -> "History":
        """Return a copy of what a state holds as `stream`. Raises IncompatibleState."""
        if not isinstance(part, Stream) or part.first_row or not part.columns:
            raise IncompatibleState("the history is no stream of all epochs")
        if set(part.columns.values()) != {(torch.float64, ())}:
            raise IncompatibleState(f"the history has other columns than numbers: {part.columns}")
        return cls(part.copy())


def _stream(names: Mapping[str, Any]) -> Stream:
    return Stream(dict.fromkeys(names, (torch.float64, ())), segment_bytes=SEGMENT_BYTES)


def _widened(stream: Stream, metrics: Mapping[str, float]) -> Stream:
    """Return a stream with the metrics' columns too, NaN in the lines so far."""
    wide = _stream({**stream.columns, **metrics})
    missing = torch.full((len(stream),), torch.nan, dtype=torch.float64)
    wide.append({n: stream.column(n) if n in stream.columns else missing for n in wide.columns})
    return wide


def _doubles(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)
