"""The loop of `tests.loop.program`: it interprets its parameter."""

import random

import numpy as np
import torch
from torch import nn

from tests.loop.datasets import Augmented, StatefulStream, Stream

NUM_EXAMPLES, BATCH_SIZE = 7, 3
ORDERS = {
    "map": {},
    "weighted": {"weights": [1.0, 0.0, 2.0, 1.0, 1.0, 5.0, 1.0]},
    "balanced": {"balance": [0, 0, 0, 1, 1, 0, 0]},
    "by_length": {"lengths": [3, 1, 4, 1, 5, 9, 2]},
    "own": {"sampler": lambda seed, number: [(seed + number + each) % 7 for each in range(7)]},
    "own_batches": {
        "batch_sampler": lambda seed, number: [[number % 7], [1, 2], [(seed + number) % 7, 3, 3]],
        "batch_size": 1,
    },
}
SCHEDULES = {
    "round_robin": {"length": "max"},
    "sequential": {"schedule": "sequential"},
    "alternating": {"schedule": "alternating", "pattern": "aab", "length": "min"},
    "drawn": {"schedule": "weighted", "length": 4, "weights": {"a": 1.0, "b": 2.0}},
    "drawn_streams": {"schedule": "weighted", "length": 5},
}
NUM_ITEMS = {"round_robin": 5, "sequential": 5, "alternating": 4, "drawn": 4, "drawn_streams": 5}


class Interpreter:
    def __init__(self, run, body):
        self.run = run
        model = nn.Linear(2, 2)
        self.model = run.keep("model", model)
        self.optimizer = run.keep("optimizer", torch.optim.Adam(model.parameters()))
        self.sums = run.keep("sums", {"value": 0.0, "calls": 0})
        self.loops = {}
        self._make(body)

    def _make(self, body):
        for each in body:
            if isinstance(each, dict):
                self._make(each["body"])
                name, workers = each["name"], each.get("workers")
                if workers is None:
                    self.loops[name] = self.run.steps(name, each["length"])
                else:
                    self.loops[name] = self._loader(name, each.get("data", "map"), workers)

    def _loader(self, name, data, workers):
        options = {"num_workers": workers, "batch_size": BATCH_SIZE}
        streams = {"stream": Stream, "stateful": StatefulStream}
        if data in streams:
            return self.run.loader(name, streams[data](NUM_EXAMPLES), **options)
        if data in ORDERS:
            return self.run.loader(name, Augmented(NUM_EXAMPLES), **options | ORDERS[data])
        make = {"a": Augmented, "b": Augmented}
        if data == "drawn_streams":
            make = {"a": Augmented, "b": Stream, "c": StatefulStream}
        loaders = {
            key: self.run.loader(f"{name}_{key}", dataset(length), **options)
            for (key, dataset), length in zip(make.items(), (7, 4, 5), strict=False)
        }
        return self.run.loaders(loaders, name=name, **SCHEDULES[data])

    def go(self, body, item):
        for each in body:
            if each == "work":
                self._work(item)
            elif each == "yield":
                yield {"train_loss": self.sums["value"], "calls": self.sums["calls"]}
            else:
                for inner in self.loops[each["name"]]:
                    if each.get("workers") is None and inner == each.get("breaks_at"):
                        break
                    yield from self.go(each["body"], inner)

    def _work(self, item):
        """Change everything that is kept, and draw from all streams."""
        item = item[1] if isinstance(item, tuple) else item
        item = item[:, :2] if isinstance(item, torch.Tensor) else torch.full((1, 2), float(item))
        loss = self.model(item.float()).square().mean() + torch.rand(()) * np.random.random()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.sums["value"] += loss.item() + random.random()
        self.sums["calls"] += 1


def train(run, parameters):
    yield from Interpreter(run, parameters.body).go(parameters.body, 0)
