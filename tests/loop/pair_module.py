"""The module of `tests.loop.pair`."""

import random

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import Dataset, IterableDataset

from trainops.kinds.loop.module import TrainingModule, make_optimizer, make_schedule, module_loop


class Examples(Dataset):
    """Examples with augmentation from all three global streams."""

    def __init__(self, number, damaged=0):
        self.number, self.damaged = number, damaged

    def __len__(self):
        return self.number

    def __getitem__(self, index):
        if index >= self.number - self.damaged:
            raise ValueError("no PNG signature")
        drawn = torch.rand(2) + random.random() + np.random.random()
        return {"inputs": drawn + index, "target": torch.tensor([index / 10])}


class Flow(IterableDataset):
    """The same examples in their order."""

    def __init__(self, number):
        self.examples = Examples(number)

    def __iter__(self):
        for index in range(len(self.examples)):
            yield self.examples[index]


class StatefulFlow(Flow):
    """Continues after the example of its state."""

    def __init__(self, number):
        super().__init__(number)
        self.position = 0

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]

    def __iter__(self):
        while self.position < len(self.examples):
            self.position += 1
            yield self.examples[self.position - 1]
        self.position = 0


def training_examples(settings):
    if settings.iterable:
        made = StatefulFlow if settings.iterable == "stateful" else Flow
        return made(settings.examples)
    return Examples(settings.examples, settings.damaged)


class Pair(TrainingModule):
    """Networks with dropout, batch normalisation and a counter of their own."""

    def __init__(self, run, parameters):
        super().__init__()
        self.settings = parameters
        self.body = nn.Sequential(
            nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 4)
        )
        self.head = nn.Linear(4, 1)
        self.register_buffer("seen", torch.zeros(()))
        if parameters.is_measured:
            from torchmetrics import MeanSquaredError, SumMetric

            self.error, self.examples = MeanSquaredError(), SumMetric()

    def loaders(self, run):
        options = {"batch_size": self.settings.batch_size, "num_workers": self.settings.num_workers}
        ordering = {
            "shuffle": not self.settings.is_ordered and not self.settings.iterable,
            "skip_undecodable": bool(self.settings.damaged),
        }
        return {
            "train": run.loader("train", training_examples(self.settings), **ordering, **options),
            "validation": self.validation(run, options),
        }

    def validation(self, run, options):
        if self.settings.is_validation_iterable:
            return run.loader("validation", Flow(7), **options)
        return run.loader("validation", Examples(7), shuffle=False, **options)

    def optimizers(self):
        settings = self.settings.optimizer
        if self.settings.optimizers == 1:
            return make_optimizer(settings, self.parameters())
        return {
            "body": make_optimizer(settings, self.body.parameters()),
            "head": torch.optim.SGD(self.head.parameters(), 0.05, momentum=0.9),
        }

    def schedulers(self, optimizers, extent):
        first, last = next(iter(optimizers.values())), list(optimizers.values())[-1]
        return [
            *make_schedule(self.settings.schedule, first, extent),
            *make_schedule(self.settings.second_schedule, last, extent, "second_schedule"),
        ]

    def turns(self, step, optimizers):
        return optimizers[: 1 + (step % 3 == 0)] if self.settings.rare else optimizers

    def frozen(self, epoch):
        return ["body.0"] if epoch < self.settings.frozen_epochs else []

    def score(self, batch):
        if self.settings.checkpointing and self.training:
            hidden = checkpoint(self.body, batch["inputs"], use_reentrant=False)
        else:
            hidden = self.body(batch["inputs"])
        return self.head(hidden)

    def training_step(self, batch, optimizer="body"):
        self.seen += len(batch["inputs"])
        error = functional.mse_loss(self.score(batch).float(), batch["target"])
        return {"loss": error if optimizer == "body" else error.sqrt(), "error": error}

    def validation_step(self, batch):
        score = self.score(batch).float()
        error = functional.mse_loss(score, batch["target"])
        found = {"loss": error, "val_root": error.sqrt()}
        if self.settings.is_measured:
            self.error.update(score, batch["target"])
            self.examples.update(len(score))
            found |= {"val_error": self.error, "val_examples": self.examples}
        return found


train = module_loop(Pair)
