"""Samplers of torch as orders that follow from the seed and the pass; see docs/loaders.md."""

import copy
import random
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    Dataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    WeightedRandomSampler,
)

from trainops.kinds.loop.orders import SamplerFunction
from trainops.kinds.loop.seeding import seed_of, start_streams, streams_restored
from trainops.runtime.errors import InputError

ALLOWED = "samplers that draw from the global streams or a generator, and follow set_epoch"
WITHIN = ("sampler", "batch_sampler")  # names of attributes that are samplers, of any class
MAX_YIELDED = 1_000_000  # or 100 for each example: a sampler that yields more does not end


def options_of(name: str, sampler: object, num_examples: int) -> dict[str, Any]:
    """Return arguments of `Run.loader` for the order of a sampler. Raises InputError."""
    kind = type(sampler)
    if kind is SequentialSampler:
        return {"shuffle": False}
    if isinstance(sampler, RandomSampler) and kind is RandomSampler:
        if sampler.replacement:
            return {"weights": torch.ones(num_examples), "num_samples": sampler.num_samples}
        if sampler.num_samples == num_examples:
            return {}
    if isinstance(sampler, WeightedRandomSampler) and kind is WeightedRandomSampler:
        drawn = {"weights": sampler.weights, "num_samples": sampler.num_samples}
        if sampler.replacement:
            return drawn
    return {"sampler": function_of(name, sampler, num_examples)}


def function_of(name: str, sampler: Any, num_examples: int) -> SamplerFunction:
    """Return what a sampler, or a batch sampler, yields as a function of the seed and the pass.

    Before each pass the global streams and its generators are seeded, and set_epoch is called.
    Raises InputError for one whose order does not follow from them alone.
    """
    what = f"the {type(sampler).__name__} of the loader {name!r}"
    _require_undivided(what, sampler)
    most = max(MAX_YIELDED, 100 * num_examples)

    def drawn(used: Any, seed: int, number: int) -> tuple[Any, list[Any]]:
        """Return a copy of a sampler after a pass, and what it has yielded."""
        text = f"{seed}/pass {number}/sampler"
        made = _begun(used, text, number)
        with streams_restored():
            start_streams(text)
            found = [_plain(each) for each in islice(made, most + 1)]
        if len(found) > most:
            raise InputError({"recipe": f"{what} yields more than {most} items; allowed: fewer"})
        return made, found

    def stored_by_pass(seed: int, number: int) -> tuple[set[str], list[Any]]:
        """Return what a pass and the next one store, and what the pass yields.

        Raises InputError where the pass depends on those before: it is repeated after the next.
        """
        first, found = drawn(sampler, seed, number)
        second, _ = drawn(first, seed, number + 1)
        third, repeated = drawn(second, seed, number)
        if differing := _differing(first, third):
            problem = f"{what} has another {' and '.join(map(repr, sorted(differing)))}"
            raise InputError({"recipe": f"{problem} when a pass is repeated; allowed: {ALLOWED}"})
        if repeated != found:
            problem = f"{what} yields another order when it is asked again"
            raise InputError({"recipe": f"{problem}; allowed: {ALLOWED}"})
        return _differing(sampler, first) | _differing(first, second), found

    known, _ = stored_by_pass(0, 0)

    def order(seed: int, number: int) -> list[Any]:
        made, found = drawn(sampler, seed, number)
        return found if _differing(sampler, made) <= known else stored_by_pass(seed, number)[1]

    return order


def _require_undivided(what: str, sampler: object) -> None:
    """Raise InputError for a sampler that divides the examples over processes."""
    for each in _all_within(sampler):
        number = getattr(each, "num_replicas", 1)  # as a DistributedSampler has it
        if type(number) is int and number > 1:
            by = "" if each is sampler else f", by its {type(each).__name__}"
            problem = f"{what} divides the examples over {number} processes{by}"
            allowed = "others, trainops divides the batches"
            raise InputError({"recipe": f"{problem}; allowed: {allowed}"})


def _plain(index: Any) -> Any:
    """Return an index, or a batch of indices, as numbers of Python."""
    return index.tolist() if isinstance(index, torch.Tensor | np.ndarray | np.generic) else index


def _is_sampler(name: str, value: object) -> bool:
    """Whether an attribute of a sampler is one, which need not derive from the class of torch."""
    if isinstance(value, Sampler):
        return True
    is_own = hasattr(value, "__dict__") and not isinstance(value, type | Dataset | torch.Tensor)
    return is_own and (name in WITHIN or callable(getattr(value, "set_epoch", None)))


def _within(sampler: object) -> dict[str, Any]:
    """Return the samplers among the attributes of a sampler."""
    attributes = getattr(sampler, "__dict__", {})
    return {name: each for name, each in attributes.items() if _is_sampler(name, each)}


def _all_within(sampler: object) -> Iterator[object]:
    """Return a sampler, and those within it at any depth."""
    yield sampler
    for each in _within(sampler).values():
        yield from _all_within(each)


def _begun(sampler: Any, seed: str, number: int) -> Any:
    """Return a copy of a sampler at the beginning of a pass; samplers within it are copied, too."""
    made, within = copy.copy(sampler), _within(sampler)
    for name, value in getattr(sampler, "__dict__", {}).items():
        if name in within:
            setattr(made, name, _begun(value, f"{seed}/{name}", number))
        elif generator := _seeded(value, seed_of(f"{seed}/{name}")):
            setattr(made, name, generator)
    if hasattr(made, "set_epoch"):
        made.set_epoch(number)
    return made


def _seeded(value: object, seed: int) -> object | None:
    """Return a generator of the same type that begins with a seed; None for other values."""
    if isinstance(value, torch.Generator):
        return torch.Generator().manual_seed(seed)
    if isinstance(value, np.random.Generator):
        return np.random.default_rng(seed)
    if isinstance(value, np.random.RandomState):
        return np.random.RandomState(seed % 2**32)
    return random.Random(seed) if isinstance(value, random.Random) else None


def _values(sampler: Any) -> dict[str, Any]:
    """Return the numbers and texts among its attributes, and those of the samplers within it."""
    found, within = dict[str, Any](), _within(sampler)
    attributes = dict[str, Any]()
    for each in (*reversed(type(sampler).__mro__), sampler):  # classes have defaults
        attributes |= getattr(each, "__dict__", {})
    for name, value in attributes.items():
        if name in within:
            found |= {f"{name}.{each}": held for each, held in _values(value).items()}
        elif type(value) in (bool, int, float, str):
            found[name] = value
    return found


def _differing(one: Any, other: Any) -> set[str]:
    """Return the names of numbers and texts that differ between two samplers."""
    values, others = _values(one), _values(other)
    return {each for each in values | others if values.get(each) != others.get(each)}
