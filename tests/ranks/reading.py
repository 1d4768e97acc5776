"""One rank reads its state between two steps, and the other does not."""

from pathlib import Path

import torch

from tests.ranks.divided_loop import Net
from trainops.kinds.loop.sharding import Shards
from trainops.runtime.ranks import Devices


def read_alone(rank, num_ranks, directory):
    """Evaluate, read the state in rank 0, train; save what the model returned in each pass."""
    torch.manual_seed(1)
    shards = Shards(Devices(rank, num_ranks), torch.device("cpu"))
    model = shards.shard(Net().eval(), None)
    inputs = torch.ones(2, 6)
    with torch.no_grad():
        evaluated = model(inputs)
    shards.reshard()
    if rank == 0:
        shards.divided({"model": model})
    trained = model(inputs)
    trained.sum().backward()
    torch.save([evaluated, trained.detach()], Path(directory) / f"rank{rank}.pt")
