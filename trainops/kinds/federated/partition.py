"""Which client has which examples: a function of the config and the data."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Dirichlet

from trainops.kinds.federated.ingredients import FILE, Federation, Group
from trainops.kinds.federated.options import FederatedOptions
from trainops.kinds.federated.rng import generator
from trainops.runtime.errors import InputError

ATTEMPTS = 200  # to draw shares that leave nobody without examples


def partition(config: FederatedOptions, federation: Federation) -> list[Tensor]:
    """Return for each client the sorted indices of its training examples. Raises InputError.

    Every example lies with exactly one client.
    """
    _require_room(config, len(federation.ingredients.train))
    parts = PARTITIONERS[config.partition.by](config, federation)
    smallest = min(map(len, parts))
    if smallest < config.partition.min_examples:
        raise InputError(
            {
                "partition.min_examples": f"got {config.partition.min_examples}; partitioned by "
                f"{config.partition.by}, a client has {smallest} of "
                f"{len(federation.ingredients.train)} examples"
            }
        )
    return [part.sort().values for part in parts]


def _require_room(config: FederatedOptions, num_examples: int) -> None:
    """Refuse more clients than there can be, before shares are drawn for them."""
    least = config.clients * config.partition.min_examples
    if config.partition.by not in ("column", "file") and least > num_examples:
        problem = (
            f"got {config.clients}; there are {num_examples} examples, and each client has at "
            f"least {config.partition.min_examples} (partition.min_examples)"
        )
        raise InputError({"clients": problem})


def _iid(config: FederatedOptions, federation: Federation) -> list[Tensor]:
    """Equal parts of a shuffled whole."""
    shuffled = _shuffled(config, len(federation.ingredients.train))
    return list(shuffled.tensor_split(config.clients))


def _dirichlet(config: FederatedOptions, federation: Federation) -> list[Tensor]:
    """Each class is shared out by proportions from a Dirichlet distribution.

    Hsu, Qi and Brown, "Measuring the effects of non-identical data distribution" (2019). Drawn
    again until every client has enough, as is usual.
    """
    drawing = generator(config.seed, "partition")
    by_class = _by_class(federation, drawing, "dirichlet")
    concentration = torch.full((config.clients,), config.partition.alpha, dtype=torch.float64)
    distribution = Dirichlet(concentration)
    for _ in range(ATTEMPTS):
        parts: list[list[Tensor]] = [[] for _ in range(config.clients)]
        for members in by_class:
            shares = _sample(distribution, drawing)
            cuts = (shares.cumsum(0)[:-1] * len(members)).round().to(torch.int64)
            for part, some in zip(parts, members.tensor_split(cuts), strict=True):
                part.append(some)
        whole = [torch.cat(part) for part in parts]
        if min(map(len, whole)) >= config.partition.min_examples:
            return whole
    raise InputError(
        {
            "partition.alpha": f"got {config.partition.alpha:g}; in {ATTEMPTS} draws some client "
            f"was left with fewer than {config.partition.min_examples} examples; allowed: a larger "
            "alpha, or fewer clients"
        }
    )


def _sample(distribution: Dirichlet, drawing: torch.Generator) -> Tensor:
    """Return a sample that a generator of the CPU draws: torch's own uses the global stream."""
    before = torch.get_rng_state()
    torch.set_rng_state(drawing.get_state())
    try:
        sample: Tensor = distribution.sample()
        drawing.set_state(torch.get_rng_state())
    finally:
        torch.set_rng_state(before)
    return sample


def _shards(config: FederatedOptions, federation: Federation) -> list[Tensor]:
    """Sorted by class, cut into shards, a few of them for each client.

    McMahan et al., "Communication-efficient learning of deep networks from decentralized data"
    (2017), section 3.
    """
    drawing = generator(config.seed, "partition")
    in_order = torch.cat(_by_class(federation, drawing, "shards"))
    per_client = config.partition.shards_per_client
    shards = in_order.tensor_split(config.clients * per_client)
    dealt = torch.randperm(len(shards), generator=drawing).view(config.clients, per_client)
    return [torch.cat([shards[number] for number in hand]) for hand in dealt.tolist()]


def _column(config: FederatedOptions, federation: Federation) -> list[Tensor]:
    return _by_group(federation, config.partition.column, "partition.column")


def _file(config: FederatedOptions, federation: Federation) -> list[Tensor]:
    return _by_group(federation, FILE, "partition.by")


PARTITIONERS: Mapping[str, Callable[[FederatedOptions, Federation], list[Tensor]]] = {
    "iid": _iid,
    "dirichlet": _dirichlet,
    "shards": _shards,
    "column": _column,
    "file": _file,
}


def _shuffled(config: FederatedOptions, count: int) -> Tensor:
    return torch.randperm(count, generator=generator(config.seed, "partition"))


def _by_class(federation: Federation, drawing: torch.Generator, by: str) -> list[Tensor]:
    """Return the shuffled examples of each class."""
    if federation.classes is None:
        raise InputError({"partition.by": f"got {by!r}; these examples have no classes; allowed: "
                          f"{', '.join(['iid', *_groupings(federation)])}"})  # fmt: skip
    owners = federation.classes.owners
    mixed = torch.randperm(len(owners), generator=drawing)
    return [mixed[owners[mixed] == number] for number in range(len(federation.classes.names))]


def _by_group(federation: Federation, name: str, field: str) -> list[Tensor]:
    group = federation.groups.get(name)
    if group is None:
        allowed = ", ".join(filter(None, federation.groups)) or "none"
        got = f"got {name or 'file'!r}"
        raise InputError({field: f"{got}; these examples can be grouped by: {allowed}"})
    parts = [(group.owners == number).nonzero().flatten() for number in range(len(group.names))]
    return [part for part in parts if len(part)]


def _groupings(federation: Federation) -> list[str]:
    return (["file"] if FILE in federation.groups else []) + (
        ["column"] if federation.groups.keys() - {FILE} else []
    )


def picture(
    config: FederatedOptions, federation: Federation, parts: list[Tensor]
) -> dict[str, Any]:
    """Return how many examples each client has, JSON-safe.

    Unless privacy is kept, of each class, and what clients of a column or of files are called.
    """
    described: dict[str, Any] = {"examples": [len(part) for part in parts]}
    if config.is_private:
        return described
    if (group := _group_of(config, federation)) is not None:
        described["names"] = [group.names[int(group.owners[part[0]])] for part in parts]
    if (classes := federation.classes) is not None:
        counts = [classes.owners[part].bincount(minlength=len(classes.names)) for part in parts]
        described["classes"] = list(classes.names)
        described["counts"] = [each.tolist() for each in counts]
    return described


def _group_of(config: FederatedOptions, federation: Federation) -> Group | None:
    """Return what a partition by column or file goes by; None of any other."""
    names = {"column": config.partition.column, "file": FILE}
    name = names.get(config.partition.by)
    return None if name is None else federation.groups.get(name)
