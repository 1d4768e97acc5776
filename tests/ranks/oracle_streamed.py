"""What `streamed` trains without noise, as a plain loop of torch's DistributedDataParallel."""

from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from tests.ranks.streamed_loop import shard_of

EPOCHS, EXAMPLES, BATCH_SIZE, SEED = 2, 50, 4, 7


def batches_of(rank, num_ranks, is_sharded):
    """Return what a rank trains on: the last batch is repeated where others have more."""
    whole = torch.arange(EXAMPLES)
    if is_sharded:
        cut = [whole[shard_of(EXAMPLES, r, num_ranks)].split(BATCH_SIZE) for r in range(num_ranks)]
        length = max(map(len, cut))
        return [cut[rank][min(at, len(cut[rank]) - 1)] for at in range(length)]
    cut = whole.split(BATCH_SIZE)
    length = -(-len(cut) // num_ranks)
    return [cut[min(at * num_ranks + rank, len(cut) - 1)] for at in range(length)]


def train_all(rank, num_ranks, directory):
    """Be one process of both trainings; rank 0 saves the models."""
    inputs = torch.randn(EXAMPLES, 6, generator=torch.Generator().manual_seed(3))
    targets = inputs.sum(1).gt(0).long()
    for is_sharded in (False, True):
        torch.manual_seed(SEED)
        model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
        net = DistributedDataParallel(model)
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        for _ in range(EPOCHS):
            for batch in batches_of(rank, num_ranks, is_sharded):
                optimizer.zero_grad()
                functional.cross_entropy(net(inputs[batch]), targets[batch]).backward()
                optimizer.step()
        if rank == 0:
            torch.save(model.state_dict(), Path(directory) / f"{is_sharded}.pt")
