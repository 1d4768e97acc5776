"""What `together` trains without noise, as a plain loop of torch's DistributedDataParallel."""

from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

EPOCHS, EXAMPLES, BATCH_SIZE, SEED = 2, 50, 4, 7


def train_plainly(rank, num_ranks, directory, left_out=()):
    """Be one process of the training; rank 0 saves the model and the optimizer.

    `left_out`: examples that the batches lack.
    """
    inputs = torch.randn(EXAMPLES, 6, generator=torch.Generator().manual_seed(3))
    targets = inputs.sum(1).gt(0).long()
    torch.manual_seed(SEED)
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
    net = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    batches = torch.arange(EXAMPLES).split(BATCH_SIZE)
    for _ in range(EPOCHS):
        for number in range(rank, len(batches) + 1, num_ranks):  # 13 batches: one is repeated
            batch = [
                each for each in batches[number % len(batches)].tolist() if each not in left_out
            ]
            optimizer.zero_grad()
            functional.cross_entropy(net(inputs[batch]), targets[batch]).backward()
            optimizer.step()
        schedule.step()
    if rank == 0:
        trained = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(trained, Path(directory) / "rank0.pt")
