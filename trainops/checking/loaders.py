"""Observe which random streams the worker processes of loaders draw from."""

import inspect
import os
import random
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, default_collate, get_worker_info

NAMES = ("Python's", "NumPy's", "torch's")


class Observed:
    """A collate function that notes which global streams moved in a worker process.

    A stream that moves between two calls was drawn from by the dataset, one that moves within a
    call by the function.
    """

    def __init__(self, collate: Callable[[Any], Any], draws: Path) -> None:
        self._collate, self._draws = collate, draws
        self._after: tuple[bytes, ...] | None = None  # of the call before, in this process

    def __call__(self, examples: Any) -> Any:
        if get_worker_info() is None:
            return self._collate(examples)
        before = _streams()
        self._note("the dataset", self._after or before, before)
        batch = self._collate(examples)
        self._after = _streams()
        self._note(getattr(self._collate, "__name__", "collate_fn"), before, self._after)
        return batch

    def _note(self, drawer: str, before: tuple[bytes, ...], after: tuple[bytes, ...]) -> None:
        moved = [each[0] for each in zip(NAMES, before, after, strict=True) if each[1] != each[2]]
        text = "".join(f"{drawer}\t{name}\n" for name in moved)
        if text:
            descriptor = os.open(self._draws, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.write(descriptor, text.encode())
            os.close(descriptor)


def observe(draws: Path) -> None:
    """Have the loaders that this process makes from now on append to this file."""
    original = DataLoader.__init__
    signature = inspect.signature(original)

    @wraps(original)
    def init(*given: Any, **named: Any) -> None:
        bound = signature.bind(*given, **named)
        bound.apply_defaults()
        values = bound.arguments
        if values["num_workers"]:
            is_batched = values["batch_size"] is not None or values["batch_sampler"] is not None
            within = getattr(values["dataset"], "collate", None)  # of `run.loader`
            if within is not None:
                values["dataset"].collate = Observed(within, draws)
            elif values["collate_fn"] is not None or is_batched:
                values["collate_fn"] = Observed(values["collate_fn"] or default_collate, draws)
        original(*bound.args, **bound.kwargs)

    DataLoader.__init__ = init  # type: ignore[method-assign]


def _streams() -> tuple[bytes, ...]:
    numpy = np.random.get_state(legacy=False)  # noqa: NPY002 - the stream that recipes draw from
    state = numpy["state"]
    return (
        repr(random.getstate()).encode(),
        state["key"].tobytes() + str(state["pos"]).encode(),
        torch.get_rng_state().numpy().tobytes(),
    )
