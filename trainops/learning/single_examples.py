"""Refuse a batch of one example before the start where the model cannot train on it.

Batch normalisation in training divides by the deviation over the batch. Over one value a channel
torch refuses that, which would otherwise happen at the last batch of an epoch: in the middle of a
run, and, with several clients, on some of them only.
"""

import copy
from collections.abc import Mapping

import torch
from torch import nn

from trainops.learning.ingredients import Examples
from trainops.runtime import generators, reproducibility
from trainops.runtime.errors import InputError

TORCH_SAYS = "Expected more than 1 value per channel"
CANDIDATES = 1000  # sizes that are tried in each direction
ADVICE = "a model without it (GroupNorm, LayerNorm)"


def require_trainable(
    model: nn.Module, train: Examples, batch_size: int, sizes: Mapping[str, int]
) -> None:
    """Raise InputError if a batch has one example and the model cannot train on it.

    The parts of the model have the modes in which they are trained.

    `sizes`: how many examples there are, by the name of those that they lie with.
    """
    single = [name for name, size in sizes.items() if _last(size, batch_size) == 1]
    if not single or _trains_on_one(model, train):
        return
    first = single[0]
    if sizes[first] == 1:
        problem = f"{first} has 1 example only; batch normalisation needs 2 or more in each batch"
        raise InputError({"recipe": f"{problem}; allowed: {ADVICE}, or more examples"})
    others = f" (and that of {len(single) - 1} more)" if len(single) > 1 else ""
    raise InputError(
        {
            "batch_size": f"got {batch_size}; of the {sizes[first]} examples of {first} the last "
            f"batch has 1{others}, and batch normalisation needs 2 or more in each batch; allowed: "
            f"{_allowed(batch_size, set(sizes.values()))}, or {ADVICE}"
        }
    )


def has_batch_norm(model: nn.Module) -> bool:
    return any(isinstance(each, nn.modules.batchnorm._BatchNorm) for each in model.modules())


def _last(size: int, batch_size: int) -> int:
    """Return how many examples the last batch of an epoch has."""
    return size % batch_size or min(size, batch_size)


def _allowed(batch_size: int, sizes: set[int]) -> str:
    """Return the nearest batch sizes that leave no example alone."""
    up = [*range(batch_size + 1, batch_size + CANDIDATES), max(sizes)]
    down = range(batch_size - 1, max(1, batch_size - CANDIDATES), -1)
    fits = (next((n for n in each if _fits(n, sizes)), None) for each in (down, up))
    return " or ".join(str(each) for each in fits if each is not None)


def _fits(batch_size: int, sizes: set[int]) -> bool:
    return all(size == 1 or _last(size, batch_size) > 1 for size in sizes)


def _trains_on_one(model: nn.Module, train: Examples) -> bool:
    """Whether a copy of the model computes one example, with the modes that its parts have.

    Statistics over more than one value a channel (images, sequences) are possible. What goes wrong
    otherwise is left to the first step.
    """
    if not has_batch_norm(model):
        return True
    streams, own = reproducibility.state_dict(), generators.find({"model": model})
    try:
        kept = {name: generators.state_of(each) for name, each in own.items()}
        tried = copy.deepcopy(model)
    except Exception:  # noqa: BLE001 - a model that cannot be copied is not tried
        return True
    try:
        with torch.no_grad():
            tried(*train.batch(torch.zeros(1, dtype=torch.int64))[0])
    except Exception as error:  # noqa: BLE001 - the recipe's code
        return TORCH_SAYS not in str(error)
    finally:
        reproducibility.load_state_dict(streams)
        for name, each in own.items():
            generators.put_back(each, kept[name])
    return True
