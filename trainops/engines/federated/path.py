"""What a run went over in the ledger, as a stream that a checkpoint writes piece by piece."""

from collections.abc import Sequence

import torch

from trainops.engines.spending import LEVELS, Entry
from trainops.engines.stream import Columns, Stream

COLUMNS: Columns = {
    "noise": (torch.uint8, (16,)),
    "step": (torch.int64, ()),
    "round": (torch.int64, ()),
    "client": (torch.int64, ()),  # NOBODY: all of them
    "level": (torch.uint8, ()),  # its place in LEVELS
    "noise_multiplier": (torch.float64, ()),
    "sample_rate": (torch.float64, ()),
    "steps": (torch.int64, ()),
    "carried": (torch.float64, ()),
}
NOBODY = -1


def new_path() -> Stream:
    return Stream(COLUMNS, segment_bytes=2**14)


def is_path(stream: object) -> bool:
    return isinstance(stream, Stream) and stream.columns == COLUMNS


def entries_of(path: Stream) -> list[Entry]:
    """Return the entries that a path went over."""
    columns = {name: path.column(name) for name in COLUMNS}
    names = [bytes(each).hex() for each in columns["noise"].tolist()]
    rows = zip(*(columns[name].tolist() for name in COLUMNS if name != "noise"), strict=True)
    return [
        Entry(
            noise=name, step=step, round=number, client=None if client == NOBODY else client,
            level=LEVELS[level], noise_multiplier=sigma, sample_rate=rate, steps=steps,
            carried=carried,
        )
        for name, (step, number, client, level, sigma, rate, steps, carried) in zip(
            names, rows, strict=True
        )
    ]  # fmt: skip


def rows_of(entries: Sequence[Entry]) -> dict[str, torch.Tensor]:
    values: dict[str, list[object]] = {name: [] for name in COLUMNS}
    for entry in entries:
        values["noise"].append(list(bytes.fromhex(entry.noise)))
        values["client"].append(NOBODY if entry.client is None else entry.client)
        values["level"].append(LEVELS.index(entry.level))
        for name in COLUMNS.keys() - {"noise", "client", "level"}:
            values[name].append(getattr(entry, name))
    return {name: torch.tensor(values[name], dtype=COLUMNS[name][0]) for name in COLUMNS}
