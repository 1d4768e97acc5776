"""The batches of many clients side by side, each client's in the order that it has by itself."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from trainops.kinds.federated.context import FederatedContext
from trainops.kinds.federated.rng import generator

MOST_NUMBERS = 2**22  # of inputs that are gathered at a time


class Batches(NamedTuple):
    """S batches, one after the other, of each of the first n clients: (S, n, B) each.

    Shorter batches are filled up with their client's last example, which counts nothing.
    """

    indices: Tensor
    counts: Tensor  # 1, or 0 where an example fills up a batch
    shares: Tensor  # of each example in the mean over its batch


def batches_of(
    context: FederatedContext, clients: Sequence[int], number: int, epoch: int
) -> Iterator[Batches]:
    """Yield an epoch's batches of clients in round `number`; who has most examples is first."""
    size = context.config.batch_size
    orders = [order_of(context, client, number, epoch) for client in clients]
    lengths = tuple(context.sizes[client] for client in clients)
    places, counts, shares = _side_by_side(lengths, size)
    indices = torch.cat(orders).take(places)
    figures = (each.to(context.layout.values) for each in (counts, shares))
    everything = (indices.to(context.device), *figures)  # (C, L) each
    numbers = sum(each[0].numel() for each in context.train.inputs)  # of an example
    for first, last, width, count in _stretches(lengths, size, MOST_NUMBERS // numbers):
        pieces = (each[:count, first:last].unflatten(1, (-1, width)) for each in everything)
        yield Batches(*(each.transpose(0, 1) for each in pieces))


def order_of(context: FederatedContext, client: int, number: int, epoch: int) -> Tensor:
    """Return a client's examples in the order that it sees them in a local epoch of a round."""
    drawing = generator(context.config.seed, "order", number, client, epoch)
    return context.parts[client].take(torch.randperm(context.sizes[client], generator=drawing))


@lru_cache(maxsize=2)  # rounds are alike, where all clients are in each
def _side_by_side(lengths: Sequence[int], size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return places in the whole of all clients' examples, counts and shares: (C, L) each.

    L is of the client that has most.
    """
    length = torch.tensor(lengths).unsqueeze(1)  # (C, 1)
    numbers = torch.arange(lengths[0])  # (L,)
    starts = length.cumsum(dim=0) - length  # of each client's examples in the whole
    counts = (numbers < length).to(torch.float64)
    shares = counts / (length - (numbers - numbers % size)).clamp(1, size)
    return starts + torch.minimum(numbers, length - 1), counts, shares


def _stretches(lengths: Sequence[int], size: int, most: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield where batches that are alike begin and end, their width, and how many clients have one.

    A stretch has at most N examples, or one batch of each client.
    """

    def kind(first: int) -> tuple[int, int]:
        return min(size, lengths[0] - first), sum(each > first for each in lengths)

    for (width, count), alike in groupby(range(0, lengths[0], size), kind):
        firsts, step = list(alike), max(1, most // (width * count))
        for begin in range(0, len(firsts), step):
            some = firsts[begin : begin + step]
            yield some[0], some[-1] + width, width, count
