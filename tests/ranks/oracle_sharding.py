"""What `divided` trains without noise, as a plain loop of torch's FSDP2."""

import math
from pathlib import Path

import torch
from torch import distributed
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn import functional

from tests.ranks.divided_loop import Net

EPOCHS, BATCH_SIZE, SEED = 2, 4, 7


def train_divided(rank, num_ranks, directory):
    """Be one process of the training; rank 0 saves the model, the best one and the moments."""
    torch.manual_seed(SEED)
    model = Net()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    inputs, targets = batches(50)
    lowest, best = math.inf, None
    for _ in range(EPOCHS):
        for number in range(rank, len(inputs) + 1, num_ranks):  # 13 batches: one is repeated
            at = number % len(inputs)
            optimizer.zero_grad()
            functional.cross_entropy(model(inputs[at]), targets[at]).backward()
            optimizer.step()
        schedule.step()
        loss = held_out_loss(model, rank, num_ranks)
        if loss < lowest:
            lowest, best = loss, whole(model.state_dict())
    moments = [whole(optimizer.state[each]) for each in model.parameters()]
    if rank == 0:
        found = {"model": whole(model.state_dict()), "best": best, "moments": moments}
        torch.save(found, Path(directory) / "rank0.pt")
    else:
        whole(model.state_dict())


def batches(length):
    inputs = torch.randn(length, 6, generator=torch.Generator().manual_seed(3))
    return inputs.split(BATCH_SIZE), inputs.sum(1).gt(0).long().split(BATCH_SIZE)


def held_out_loss(model, rank, num_ranks):
    inputs, targets = batches(16)
    model.eval()
    with torch.no_grad():
        losses = [
            functional.cross_entropy(model(x), y).item()
            for x, y in zip(inputs[rank::num_ranks], targets[rank::num_ranks], strict=True)
        ]
    model.train()
    mean = torch.tensor(sum(losses) / len(losses), dtype=torch.float64)
    distributed.all_reduce(mean)
    return mean.item() / num_ranks


def whole(state):
    """Return a copy with whole tensors; to be called in all ranks."""
    return {
        name: (each.full_tensor() if isinstance(each, DTensor) else each).clone()
        for name, each in state.items()
    }
