"""Train from a directory within a limit of memory: a process of its own, for test_memory.

`KIND SMALL PATH WIDTH LIMIT`: after a training on the small data, the process may take LIMIT more
bytes of address space for that on the data at PATH; for files that are mapped, of memory of its
own. Prints the number of rows, and by how many bytes its resident memory grew at most.
"""

import resource
import sys
from pathlib import Path
from resource import RLIMIT_AS, RLIMIT_DATA

import numpy as np
import psutil
import torch
from torch import nn
from torch.utils.data import DataLoader

from tests.memory import mapped_bytes, peak_bytes
from trainops.learning.readers import (
    ArrayRows,
    ArrowRows,
    ImageFolder,
    JsonLines,
    ParquetRows,
    TarShards,
    TextLines,
)

BATCH, PARQUET_BATCH = 64, 4096


def parquet(path):
    rows = ParquetRows(path, cached_groups=1)
    for indices in rows.order(0, 0).split(PARQUET_BATCH):
        table = rows.batch(indices.tolist())
        columns = [table[name].to_numpy() for name in table.column_names]
        yield torch.from_numpy(np.stack(columns, 1))


def arrays(path):
    return (batch["x"] for batch in loaded(ArrayRows(path)))


def shards(path):
    return (batch["npy"] for batch in loaded(TarShards(path)))


def text(path):
    return (characters(map(str.encode, batch)) for batch in loaded(TextLines(path)))


def json_lines(path):
    return (characters(map(str.encode, batch["text"])) for batch in loaded(JsonLines(path)))


def characters(texts):
    """Return every fourth byte of texts of one length as numbers."""
    codes = [torch.frombuffer(bytearray(each), dtype=torch.uint8) for each in texts]
    return torch.stack(codes)[:, ::4].float()


def images(path):
    folder = ImageFolder(path)
    return (batch.flatten(1)[:, ::4].float() for batch, _ in loaded(folder, BATCH // 8))


def arrow(path):
    return (characters(batch["x"]) for batch in loaded(ArrowRows(path)))


def whole(path):
    """Not ours: what does not fit into the limit."""
    return torch.from_numpy(np.load(next(Path(path).iterdir()))).split(BATCH)


def loaded(dataset, batch_size=BATCH):
    generator = torch.Generator().manual_seed(0)
    return DataLoader(dataset, batch_size=batch_size, shuffle=True, generator=generator)


def main(kind, small, path, width, limit):
    torch.set_num_threads(1)
    model = nn.Linear(width, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    train(model, optimizer, globals()[kind](small))  # imports, threads and pools are there then
    before = psutil.Process().memory_info()
    # Mapped files are the system's cache, which it takes back: not memory of the process.
    which, now = (RLIMIT_DATA, before.data) if kind == "arrow" else (RLIMIT_AS, before.vms)
    resource.setrlimit(which, (now + limit, now + limit))
    num_rows = train(model, optimizer, globals()[kind](path))
    grown = peak_bytes() - before.rss - (mapped_bytes() if kind == "arrow" else 0)
    print(num_rows, grown)  # noqa: T201 - what it is run for


def train(model, optimizer, batches):
    num_rows = 0
    for batch in batches:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        num_rows += len(batch)
    return num_rows


if __name__ == "__main__":
    main(*sys.argv[1:4], *map(int, sys.argv[4:]))
