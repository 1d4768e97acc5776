"""What `divided_module` trains in windows and with clipping, as a plain loop of torch's FSDP2."""

from itertools import islice
from pathlib import Path

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional

from tests.loop.pair import Parameters
from tests.loop.pair_module import Examples
from tests.ranks.divided_module import Divided
from tests.ranks.oracle_module import SEED, added, batches
from tests.ranks.oracle_sharding import whole
from trainops.runtime import rank_state, reproducibility
from trainops.runtime.ranks import Devices


class Scores(nn.Module):
    """The forward pass of training: the root of what is divided."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, inputs):
        self.net.calls += 1
        self.net.seen += len(inputs)
        return self.net.head(self.net.body(inputs))


def train_divided(rank, num_ranks, directory, given):
    """Be one rank of the training; rank 0 saves the model and the moments."""
    devices, settings = Devices(rank, num_ranks), Parameters.parse(given)
    reproducibility.seed_all(SEED)
    net = Divided(type("Rank", (), {"rank": rank}), settings)
    for block in net.body[1].blocks:
        fully_shard(block)
    scores = fully_shard(Scores(net))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
    train = batches(devices, "train", Examples(settings.examples), settings.batch_size)
    if rank:
        rank_state.seed_rank(SEED, devices)
    for epoch in range(settings.epochs):
        rest = iter(train(epoch))
        while window := list(islice(rest, settings.accumulation)):
            examples = added(sum(len(batch["target"]) for batch in window)).item()
            for batch in window:
                loss = functional.mse_loss(scores(batch["inputs"]).float(), batch["target"])
                # FSDP divides the sum of the gradients by the ranks
                (loss * (len(batch["target"]) * num_ranks / examples)).backward()
            nn.utils.clip_grad_norm_(net.parameters(), settings.max_grad_norm)
            optimizer.step()
            optimizer.zero_grad()
    found = {
        "model": whole(net.state_dict()),
        "moments": [whole(optimizer.state[each]) for each in net.parameters()],
    }
    if rank == 0:
        torch.save(found, Path(directory) / "rank0.pt")
