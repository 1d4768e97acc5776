"""Train from a directory within a limit of memory: a process of its own, for test_memory.

`KIND SMALL PATH WIDTH LIMIT NUM_WORKERS`: after a training on the small data, the process may take
LIMIT more bytes of address space for that on the data at PATH, and each worker process as much;
for files that are mapped, of memory of its own. Prints the number of rows, and by how many bytes
the resident memory of the process and of its largest worker grew at most.
"""

import resource
import sys
import threading
from pathlib import Path
from resource import RLIMIT_AS, RLIMIT_DATA

import numpy as np
import psutil
import torch
from torch import nn
from torch.utils.data import Dataset

from tests.memory import mapped_bytes, peak_bytes, workers_peak_bytes
from trainops.kinds.loop.course import Course
from trainops.kinds.loop.run import Run
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


class Columns(Dataset):
    """Rows of a table as tensors, a batch at once."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitems__(self, indices):
        table = self.rows.batch(indices)
        columns = [table[name].to_numpy() for name in table.column_names]
        return torch.from_numpy(np.stack(columns, 1))

    def __getitem__(self, index):
        return self.__getitems__([index])[0]


def parquet(path):
    rows = ParquetRows(path, cached_groups=1)
    order = {"sampler": rows.order, "collate_fn": torch.as_tensor}
    return loaded(Columns(rows), PARQUET_BATCH, **order)


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


def loaded(dataset, batch_size=BATCH, **options):
    """Return the batches of a pass of `run.loader`."""
    run = Run(Course(lambda: None), seed=0, device=torch.device("cpu"), inputs={})
    workers = {"num_workers": int(sys.argv[6])}
    yield from run.loader("train", dataset, batch_size=batch_size, **workers, **options)
    run.close()


def main(kind, small, path, width, limit, num_workers):
    torch.set_num_threads(1)
    threading.stack_size(2**20)  # of the threads by which workers send, within the limit, too
    model = nn.Linear(width, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    train(model, optimizer, globals()[kind](small))  # imports, threads and pools are there then
    before = psutil.Process().memory_info()
    # Mapped files are the system's cache, which it takes back: not memory of the process.
    which, now = (RLIMIT_DATA, before.data) if kind == "arrow" else (RLIMIT_AS, before.vms)
    resource.setrlimit(which, (now + limit, now + limit))
    num_rows = train(model, optimizer, globals()[kind](path))
    grown = peak_bytes() - before.rss - (mapped_bytes() if kind == "arrow" else 0)
    grown_workers = workers_peak_bytes() - before.rss if num_workers else 0
    print(num_rows, grown, grown_workers)  # noqa: T201 - what it is run for


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
