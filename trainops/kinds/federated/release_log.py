"""What a run went over in the ledger, as a stream that a checkpoint writes piece by piece.

Who took part in a round, and who has how many examples, is sealed with the ledger's secret: where
chance decides, privacy gains by that only while the choice is secret.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from trainops.kinds.federated.releases import LEVELS, Release
from trainops.kinds.federated.rng import Secrets
from trainops.runtime.checkpoint.stream import Columns, Stream

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
SEALED = ("client", "sample_rate", "steps")  # of eight bytes each
NOBODY = -1


def new_path() -> Stream:
    return Stream(COLUMNS, segment_bytes=2**14)


def is_path(stream: object) -> bool:
    return isinstance(stream, Stream) and stream.columns == COLUMNS


def names_of(path: Stream) -> list[str]:
    """Return what names each release that a path went over."""
    return [bytes(each).hex() for each in path.column("noise").tolist()]


def entries_of(path: Stream, secret: bytes) -> list[Release]:
    """Return the entries that a path went over; nonsense, by another secret than theirs."""
    names = names_of(path)
    columns = _combined({name: path.column(name) for name in COLUMNS}, names, secret)
    rows = zip(*(columns[name].tolist() for name in COLUMNS if name != "noise"), strict=True)
    return [
        Release(
            noise=name, step=step, round=number, client=None if client == NOBODY else client,
            level=LEVELS[level], noise_multiplier=sigma, sample_rate=rate, steps=steps,
            carried=carried,
        )
        for name, (step, number, client, level, sigma, rate, steps, carried) in zip(
            names, rows, strict=True
        )
    ]  # fmt: skip


def rows_of(entries: Sequence[Release], secret: bytes) -> dict[str, Tensor]:
    values: dict[str, list[object]] = {name: [] for name in COLUMNS}
    for entry in entries:
        values["noise"].append(list(bytes.fromhex(entry.noise)))
        values["client"].append(NOBODY if entry.client is None else entry.client)
        values["level"].append(LEVELS.index(entry.level))
        for name in COLUMNS.keys() - {"noise", "client", "level"}:
            values[name].append(getattr(entry, name))
    plain = {name: torch.tensor(values[name], dtype=COLUMNS[name][0]) for name in COLUMNS}
    return _combined(plain, [entry.noise for entry in entries], secret)


def _combined(
    columns: Mapping[str, Tensor], names: Sequence[str], secret: bytes
) -> dict[str, Tensor]:
    """Return the columns, sealed, or open where they were sealed: twice the same changes nothing.

    No two entries have one name, so no bytes of the stream serve twice.
    """
    secrets = Secrets(secret, seed=0)  # a fork by another seed reads it, too
    drawn = b"".join(secrets.draw(8 * len(SEALED), "path", name) for name in names)
    masks = torch.from_numpy(np.frombuffer(drawn, "<i8").reshape(-1, len(SEALED)).copy())
    found = dict(columns)
    for place, name in enumerate(SEALED):
        combined = columns[name].view(torch.int64) ^ masks[:, place]
        found[name] = combined.view(columns[name].dtype)
    return found
