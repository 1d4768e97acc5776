"""Modules whose sizes torch finds by the first batch: nn.LazyLinear and the like."""

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

INPUTS = torch.linspace(-1, 1, 60).view(10, 1, 6)


class Net(nn.Module):
    """`unused` never gets a size."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.LazyConv1d(2, 3),
            nn.LazyBatchNorm1d(affine=False),
            nn.LazyInstanceNorm1d(affine=True),
            nn.Flatten(),
            nn.LazyLinear(1),
        )
        self.unused = nn.LazyLinear(2)

    def forward(self, inputs):
        return self.layers(inputs)


def trains(keeps_optimizer_first):
    def train(run, parameters):
        model = Net()
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        kept = {"model": model, "optimizer": optimizer}
        for name in sorted(kept, reverse=keeps_optimizer_first):
            run.keep(name, kept[name])
        batches = run.loader("train", TensorDataset(INPUTS), batch_size=3)
        for _ in run.epochs(2):
            for (inputs,) in batches:
                loss = (model(inputs) - inputs.sum(2)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                yield {"train_loss": loss, "val_loss": loss.detach()}

    return train


@pytest.mark.parametrize("keeps_optimizer_first", [False, True])
def test_a_lazy_module_continues_exactly_also_before_its_first_batch(
    require_exact, keeps_optimizer_first
):
    require_exact(trains(keeps_optimizer_first), stops=[0, 1, 5])
