"""Make the source of a loader from the arguments of `Run.loader`."""

from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from trainops.kinds.loop.batches import MapBatches, Workers
from trainops.kinds.loop.choice import Choice
from trainops.kinds.loop.examples import Collate
from trainops.kinds.loop.rank_streams import Gather
from trainops.kinds.loop.streams import StreamBatches
from trainops.runtime.errors import InputError
from trainops.runtime.ranks import ALONE, Devices


def make_source(
    name: str,
    dataset: Any,
    choice: Choice,
    workers: Workers,
    *,
    seed: str,
    batch_size: int | None,
    drop_last: bool,
    collate_fn: Collate | None,
    is_random: bool,
    skip_undecodable: bool,
    shards_itself: bool = False,
    devices: Devices = ALONE,
    gather: Gather | None = None,
) -> MapBatches | StreamBatches:
    """Return the batches of a map-style or an iterable dataset. Raises InputError."""
    is_iterable = _is_iterable(name, dataset)
    if (batch_size is None and not is_iterable) or (batch_size is not None and batch_size < 1):
        problem = f"got batch_size {batch_size} for {name!r}"
        allowed = "at least 1, or None for an iterable dataset that yields batches"
        raise InputError({"recipe": f"{problem}; allowed: {allowed}"})
    if is_iterable:
        if given := [*choice.given(), *(["skip_undecodable"] if skip_undecodable else [])]:
            problem = f"got {' and '.join(given)} for {name!r}, whose dataset is iterable"
            raise InputError({"recipe": f"{problem}; allowed: with map-style datasets"})
        return StreamBatches(
            name, dataset, seed=seed, batch_size=batch_size, drop_last=drop_last,
            workers=workers, collate_fn=collate_fn, is_random=is_random,
            devices=devices, shards_itself=shards_itself, gather=gather,
        )  # fmt: skip
    if shards_itself:
        problem = f"got shards_itself for {name!r}, whose dataset is map-style"
        raise InputError({"recipe": f"{problem}; allowed: with iterable datasets"})
    order = choice.make(name, len(dataset), seed, batch_size or 1, drop_last)
    return MapBatches(
        name, dataset, order, seed=seed, workers=workers, collate_fn=collate_fn,
        is_random=is_random, skip_undecodable=skip_undecodable, drop_last=drop_last,
        devices=devices, gather=gather,
    )  # fmt: skip


def _is_iterable(name: str, dataset: Any) -> bool:
    """Whether a dataset is iterable, not map-style. Raises InputError for one that is neither."""
    if isinstance(dataset, IterableDataset):
        return True
    if hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__"):
        return False
    if isinstance(dataset, DataLoader) or not hasattr(dataset, "__iter__"):
        problem = f"got a {type(dataset).__name__} for {name!r}"
        allowed = "datasets with __len__ and __getitem__, and iterable ones"
        raise InputError({"recipe": f"{problem}; allowed: {allowed}"})
    return True
