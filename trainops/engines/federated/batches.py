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
    whole, length = torch.cat(orders), torch.tensor(lengths).unsqueeze(1)
    starts = length.cumsum(dim=0) - length  # of each client's examples in the whole
    for first in range(0, lengths[0], size):
        count = sum(each > first for each in lengths)
        places = torch.arange(first, min(first + size, lengths[0]))
        ends = length[:count]
        indices = whole[starts[:count] + torch.minimum(places, ends - 1)]
        counts = (places < ends).to(torch.float32)
        each = indices, counts, counts / (ends - first).clamp(max=size)
        yield Batches(*(tensor.to(workshop.device) for tensor in each))


def order_of(workshop: Workshop, client: int, number: int, epoch: int) -> Tensor:
    """Return a client's examples in the order that it sees them in a local epoch of a round."""
    part = workshop.parts[client]
    drawing = generator(workshop.config.seed, "order", number, client, epoch)
    return part[torch.randperm(len(part), generator=drawing)]
