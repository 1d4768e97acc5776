"""Loaders of a training: the loops over their batches, and what the trainer shows of them."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from lightning.pytorch.utilities.combined_loader import CombinedLoader

from trainops.kinds.loop.passes import Passes
from trainops.runtime.errors import InputError


class Loaders(NamedTuple):
    """The loops over batches, and the loaders that the module gave for them."""

    train: Passes
    validations: list[Passes]
    given: Any
    given_validation: Any


class LoaderOfRanks:
    """A loader that several ranks share: its attributes, without the batches of one rank."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":  # of a copy that has no attributes yet
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        self._refuse("len()")

    def __iter__(self) -> NoReturn:
        self._refuse("iter()")

    def _refuse(self, what: str) -> NoReturn:
        problem = f"{what} of a loader of the trainer with several processes"
        allowed = "trainer.num_training_batches and trainer.num_val_batches, or one process"
        raise InputError({"recipe": f"{problem}; allowed: {allowed}"})


def shown(given: Any, num_ranks: int) -> Any:
    """Return what Lightning's Trainer shows of loaders, in their structure."""
    if isinstance(given, CombinedLoader):
        given = given.iterables
    if num_ranks == 1 or given is None:
        return given
    if isinstance(given, Mapping):
        return {name: shown(each, num_ranks) for name, each in given.items()}
    if isinstance(given, list | tuple):
        return [shown(each, num_ranks) for each in given]
    return LoaderOfRanks(given)


def num_batches(loader: Passes) -> int | float:
    """Return the number of batches of a pass, perhaps an estimate; inf where it is not known."""
    try:
        return len(loader)
    except TypeError:  # of an iterable dataset
        return math.inf
