"""The loop of `tests.ranks.together`. The variable FAULT of the environment disturbs it.

"stop 0 5": at step 5 rank 0 gets the signal to save and stop. "kill 1 5": SIGKILL for rank 1.
"raise 1 5", "diverge 1 5", "freeze 1 5", "sleep 1 5" likewise; "place 1 5": a
LightningModule prints where it is.
"""

import os
import random
import signal
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset

FAULT = "TEST_RANKS_FAULT"
SIGNALS = {"stop": signal.SIGUSR1, "kill": signal.SIGKILL, "freeze": signal.SIGSTOP}


class Noisy(Dataset):
    """Examples with random augmentation."""

    def __init__(self, length, noise=0.1, damaged=()):
        self.noise, self.damaged = noise, damaged
        generator = torch.Generator().manual_seed(3)
        self.inputs = torch.randn(length, 6, generator=generator)
        self.targets = self.inputs.sum(1).gt(0).long()

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        if index in self.damaged:
            raise ValueError("no PNG signature")
        return self.inputs[index] + self.noise * torch.randn(6), self.targets[index]


def make_model(is_plain):
    dropout = [] if is_plain else [nn.Dropout(0.2)]
    return nn.Sequential(
        nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), *dropout, nn.Linear(16, 2)
    )


def train(run, parameters):
    model = run.keep("model", make_model(parameters.is_plain).to(run.device))
    net = run.wrap(model)
    optimizer = run.keep("optimizer", torch.optim.Adam(model.parameters(), 0.01))
    schedule = run.keep("schedule", torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9))
    own = run.keep("own", {"drawn": 0.0, "steps": 0})
    batches = run.loader(
        "train",
        Noisy(50, 0.0 if parameters.is_plain else 0.1, parameters.damaged),
        batch_size=4,
        skip_undecodable=bool(parameters.damaged) and parameters.skip_undecodable,
        shuffle=not parameters.is_plain,
        drop_last=parameters.drop_last,
    )
    held_out = run.loader("held_out", Noisy(16), batch_size=4, shuffle=False)
    for _ in run.epochs(parameters.epochs):
        for inputs, targets in batches:
            loss = functional.cross_entropy(net(inputs.to(run.device)), targets.to(run.device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            own["steps"] += 1
            own["drawn"] += torch.rand(()).item() + random.random() + np.random.random()  # noqa: S311, NPY002
            disturb(run.rank, own["steps"], model)
            yield {"train_loss": loss, "own": own["drawn"]}
        schedule.step()
        model.eval()
        with torch.no_grad():
            scores = [(model(x.to(run.device)), y.to(run.device)) for x, y in held_out]
            losses = [functional.cross_entropy(*each).item() for each in scores]
        model.train()
        yield {"val_loss": sum(losses) / len(losses)}


def disturb(rank, step, model):
    what, *where = (os.environ.get(FAULT) or "none").split()
    if where != [str(rank), str(step)]:
        return
    if what in SIGNALS:
        os.kill(os.getpid(), SIGNALS[what])
    elif what == "sleep":
        time.sleep(1000)
    elif what == "place":
        trainer = model.trainer
        print(trainer.node_rank, trainer.num_nodes, trainer.num_devices, model.local_rank)  # noqa: T201
    elif what == "raise":
        raise ValueError("boom")
    elif what == "diverge":
        with torch.no_grad():
            model[0].weight[0, 0] += 1e-6
    elif what == "print":
        print("hello\nthere")  # noqa: T201
