"""The batches of many clients side by side, each client's in the order that it has by itself."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainops.engines.federated.drawing import generator
from trainops.engines.federated.workshop import Workshop


@dataclass(frozen=True, slots=True)
class Batches:
    """One batch of each of the first n clients: indices (n, B), and which of them count (n, B).

    Shorter batches are filled up with their client's last example, which counts nothing.
    """

    indices: Tensor
    counts: Tensor
    shares: Tensor  # of each example in the mean over its batch


def batches_of(
    workshop: Workshop, clients: Sequence[int], number: int, epoch: int
) -> Iterator[Batches]:
    """Yield an epoch's batches of clients in round `number`; who has most examples is first."""
    size = workshop.config.batch_size
    orders = [order_of(workshop, client, number, epoch) for client in clients]
    lengths = [len(each) for each in orders]
    length = torch.tensor(lengths).unsqueeze(1)  # (C, 1)
    places = torch.arange(lengths[0])  # (L,), of the longest
    starts = length.cumsum(dim=0) - length  # of each client's examples in the whole
    indices = torch.cat(orders)[starts + torch.minimum(places, length - 1)]
    counts = (places < length).to(torch.float32)
    shares = counts / (length - (places - places % size)).clamp(1, size)
    everything = [each.to(workshop.device) for each in (indices, counts, shares)]  # (C, L) each
    for first in range(0, lengths[0], size):
        count = sum(each > first for each in lengths)
        yield Batches(*(each[:count, first : first + size] for each in everything))


def order_of(workshop: Workshop, client: int, number: int, epoch: int) -> Tensor:
    """Return a client's examples in the order that it sees them in a local epoch of a round."""
    part = workshop.parts[client]
    drawing = generator(workshop.config.seed, "order", number, client, epoch)
    return part[torch.randperm(len(part), generator=drawing)]
