"""Datasets of the tests of loaders. All draw from the three global streams."""

import random

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info


def drawn(index):
    return torch.tensor([float(index), torch.rand(()), random.random(), np.random.random()])


class Augmented(Dataset):
    def __init__(self, length=10):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return drawn(index)


class Stream(IterableDataset):
    """Without a state: worker processes share its examples."""

    def __init__(self, length=10):
        self.length = length

    def __iter__(self):
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for index in range(first, self.length, step):
            yield drawn(index)


class Buffered(IterableDataset):
    """Shuffles in a buffer that its state lacks, as datasets of Hugging Face do."""

    __module__ = "datasets.iterable_dataset"

    def __init__(self, length=10):
        self.length, self.start, self.position, self.epoch = length, 0, 0, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.start = state["position"]

    def __iter__(self):
        self.position, self.start = self.start, 0
        order, buffer = random.Random(self.epoch), []
        while self.position < self.length or buffer:
            while self.position < self.length and len(buffer) < 4:
                buffer.append(self.position)
                self.position += 1
            yield drawn(buffer.pop(order.randrange(len(buffer))))


class StatefulStream(IterableDataset):
    """With a state: its position, an order that it draws for each pass, and a count of all."""

    def __init__(self, length=10):
        self.length = length
        self.position, self.order, self.total = 0, [], 0
        self.num_read = 0  # in this process

    def state_dict(self):
        return {"position": self.position, "order": self.order, "total": self.total}

    def load_state_dict(self, state):
        self.position, self.order = state["position"], list(state["order"])
        self.total = state["total"]

    def __iter__(self):
        if not self.position:
            self.order = torch.randperm(self.length).tolist()
        while self.position < self.length:
            index = self.order[self.position]
            self.position += 1
            self.total += 1
            self.num_read += 1
            yield drawn(index + 100 * self.total)
        self.position = 0


class Share(IterableDataset):
    """With a state in each worker process: its position, and the passes before."""

    def __init__(self, length=10):
        self.length, self.position, self.passes = length, 0, 0

    def state_dict(self):
        return {"position": self.position, "passes": torch.tensor(self.passes)}

    def load_state_dict(self, state):
        self.position, self.passes = state["position"], int(state["passes"])

    def example(self, index):
        return drawn(index + 100 * self.passes)

    def __iter__(self):
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        indices = range(first, self.length, step)
        while self.position < len(indices):
            self.position += 1
            yield self.example(indices[self.position - 1])
        self.position, self.passes = 0, self.passes + 1
