"""The loop of `tests.ranks.divided`, disturbed by FAULT as `tests.ranks.together_loop` is.

The model has fewer rows than ranks in places, rows that the ranks cannot divide equally, and
buffers; the noise that a rank adds comes from its own random stream.
"""

import torch
from torch import nn
from torch.nn import functional

from tests.ranks.together_loop import Noisy, disturb


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 15)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(15, 15), nn.BatchNorm1d(15), nn.ReLU()) for _ in range(2)
        )
        self.last = nn.Linear(15, 2)

    def forward(self, inputs):
        hidden = self.first(inputs)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        return self.last(hidden)


def train(run, parameters):
    model = run.keep("model", Net())
    if parameters.is_early:
        run.keep("optimizer", torch.optim.Adam(model.parameters(), 0.01))
    net = run.wrap(model).to(run.device)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    if not parameters.is_early:
        run.keep("optimizer", optimizer)
    schedule = run.keep("schedule", torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9))
    own = run.keep("own", {"steps": 0})
    batches = run.loader("train", Noisy(50, 0.0), batch_size=4, shuffle=False)
    held_out = run.loader("held_out", Noisy(16, 0.0), batch_size=4, shuffle=False)
    for _ in run.epochs(parameters.epochs):
        for inputs, targets in batches:
            noisy = inputs if parameters.is_plain else inputs + 0.1 * torch.randn(inputs.shape)
            loss = functional.cross_entropy(net(noisy.to(run.device)), targets.to(run.device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            own["steps"] += 1
            if parameters.keeps_rows:
                own["first"] = [model.first.weight]
            disturb(run.rank, own["steps"], None)
            yield {"train_loss": loss}
        schedule.step()
        model.eval()
        with torch.no_grad():
            losses = [
                functional.cross_entropy(net(x.to(run.device)), y.to(run.device)).item()
                for x, y in held_out
            ]
        model.train()
        yield {"val_loss": sum(losses) / len(losses)}
