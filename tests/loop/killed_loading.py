"""Be killed while worker processes of a loader begin, for test_orphans. `DIRECTORY METHOD`."""

import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

import torch
from torch import multiprocessing
from torch.utils.data import TensorDataset

from tests.waiting import wait_until
from trainops.kinds.loop.course import Course
from trainops.kinds.loop.run import Run

NUM_WORKERS = 2


def begin_slowly(directory, _number):
    """Open files of a dataset, for example."""
    (directory / str(os.getpid())).touch()
    time.sleep(1)


def wait_and_die(directory, parent_pid):
    wait_until(lambda: len(list(directory.iterdir())) == NUM_WORKERS)
    os.kill(parent_pid, signal.SIGKILL)
    os._exit(0)


def main(directory, method):
    multiprocessing.set_start_method(method)
    run = Run(Course(lambda: None), seed=0, device=torch.device("cpu"), inputs={})
    loader = run.loader(
        "train", TensorDataset(torch.arange(8)), batch_size=2, num_workers=NUM_WORKERS,
        worker_init_fn=partial(begin_slowly, directory),
    )  # fmt: skip
    parent_pid = os.getpid()
    if not os.fork():
        wait_and_die(directory, parent_pid)
    for _ in loader:
        pass


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
