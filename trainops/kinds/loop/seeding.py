"""Random numbers that are a function of a text: the seed, the loader, the pass, the example."""

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch.utils.data import get_worker_info

from trainops.kinds.loop.numpy_stream import numpy_restored


def seed_of(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) % 2**63


def generator_of(text: str) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(text))


def start_streams(text: str) -> None:
    """Start the global streams anew, as a function of this text."""
    seed = seed_of(text)
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - the stream that datasets draw from
    random.seed(seed)


@contextmanager
def streams_restored() -> Iterator[None]:
    """Put the global streams back after the block; not in worker processes, whose own they are."""
    if get_worker_info() is not None:
        yield
        return
    torch_state, python = torch.get_rng_state(), random.getstate()
    try:
        with numpy_restored():
            yield
    finally:
        torch.set_rng_state(torch_state)
        random.setstate(python)
