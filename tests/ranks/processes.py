"""Two processes of torch.distributed on this machine, for training without trainops."""

import os
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed, multiprocessing
from torch.distributed import FileStore

NUM_RANKS = 2


def run_ranks(train, directory, *arguments):
    """Call `train(rank, num_ranks, directory, *arguments)` in two processes of one group."""
    multiprocessing.spawn(_run_rank, (train, str(directory), arguments), nprocs=NUM_RANKS)


def _run_rank(rank, train, directory, arguments):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    store = FileStore(str(Path(directory) / "store"), NUM_RANKS)
    distributed.init_process_group(
        "gloo", store=store, rank=rank, world_size=NUM_RANKS, timeout=timedelta(seconds=120)
    )
    train(rank, NUM_RANKS, directory, *arguments)
    # Neither is the group destroyed nor the interpreter finalized: torch joins the threads of gloo
    # while it holds the GIL, for which such a thread may wait to release its last tensor.
    os._exit(0)
