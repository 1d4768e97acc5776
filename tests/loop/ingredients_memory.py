"""Train the example `spectra` within a limit of memory: a process of its own, for test_ingredients.

`SMALL LARGE LIMIT NUM_WORKERS`: after a training on the small directory, the process may take LIMIT
more bytes of address space for that on the large one, and each worker process as much. Prints the
number of examples, and by how many bytes the resident memory of the process and of its largest
worker grew at most.
"""

import os
import resource
import sys
from pathlib import Path

import psutil
import torch

from tests.memory import peak_bytes, reset_peak, workers_peak_bytes
from trainops.kind import KINDS

DATASET = "ds_0000000000000000"


def train(location, num_workers):
    parameters = {"directory": DATASET, "epochs": 1, "num_workers": num_workers, "batch_size": 32}
    kind = KINDS["loop"]
    config = kind.parse_config({"recipe": "spectra", "parameters": parameters})
    job = kind.job_factory(config, {DATASET: Path(location)}, None)()
    while not job.is_finished:
        job.advance()
    samples = job.throughput.num_samples
    job.close()
    return samples


def main(small, large, limit, num_workers):
    torch.set_num_threads(1)
    train(small, num_workers)  # imports, threads and pools are there then
    before = psutil.Process().memory_info()
    reset_peak()
    resource.setrlimit(resource.RLIMIT_AS, (before.vms + limit, before.vms + limit))
    num_examples = train(large, num_workers)
    grown_workers = workers_peak_bytes() - before.rss if num_workers else 0
    print(num_examples, peak_bytes() - before.rss, grown_workers)  # noqa: T201 - what it is run for


if __name__ == "__main__":
    os.environ["TRAINOPS_RECIPES"] = "examples.recipes.spectra:RECIPE"
    main(*sys.argv[1:3], *map(int, sys.argv[3:]))
