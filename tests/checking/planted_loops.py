"""The loops of `tests.checking.planted`: each forgets what it is named after."""

import datetime
import itertools
import os
import signal
import time

import numpy as np
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, default_collate

from trainops.learning.ingredients import Examples, Ingredients

INPUTS = torch.linspace(-1, 1, 36).reshape(18, 2)
STEPS = {"taken": 0}


class Net(nn.Module):
    """A linear model; `seen` scales its outputs where it is used."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1)
        self.seen = 0

    def forward(self, inputs):
        return self.layer(inputs)


class Counting(Net):
    def forward(self, inputs):
        self.seen += 1
        return self.layer(inputs) / (1 + self.seen)


def made(run, model=None, lr=0.1):
    """Return a kept model, its kept optimizer and the batches."""
    model = run.keep("model", model or Net())
    optimizer = run.keep("optimizer", torch.optim.SGD(model.parameters(), lr, momentum=0.5))
    return model, optimizer, run.loader("train", TensorDataset(INPUTS), batch_size=4)


def step(model, optimizer, inputs, factor=1.0):
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean() * factor
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return {"train_loss": loss.detach()}


def nothing(run, parameters):
    model, optimizer, batches = made(run)
    sums = run.keep("sums", {"loss": 0.0})
    for epoch in run.epochs(parameters.epochs):
        if epoch == 1:
            model.layer.eval()
        for (inputs,) in batches:
            metrics = step(model, optimizer, inputs)
            sums["loss"] += metrics["train_loss"].item()
            yield metrics | {"sum": sums["loss"]}


class Shifting(Net):
    """In ranks other than 0, `seen` changes the gradients."""

    def __init__(self, rank):
        super().__init__()
        self.rank = rank

    def forward(self, inputs):
        self.seen += self.rank
        return self.layer(inputs) / (1 + self.seen)


def ranks(run, parameters):
    """Forgets in another rank only what changes the mean of the gradients."""
    model, optimizer, batches = made(run, Shifting(run.rank if parameters.forgets else 0))
    net = run.wrap(model)
    if parameters.fails_in_rank and run.rank == parameters.fails_in_rank:
        raise ValueError("planted")
    for _ in run.epochs(parameters.epochs):
        for (inputs,) in batches:
            yield step(net, optimizer, inputs)


def divided(run, parameters):
    """Divides its model over the ranks; forgets as `ranks`."""
    model = run.keep("model", Shifting(run.rank if parameters.forgets else 0))
    net = run.wrap(model)
    optimizer = run.keep("optimizer", torch.optim.SGD(model.parameters(), 0.1, momentum=0.5))
    batches = run.loader("train", TensorDataset(INPUTS), batch_size=4)
    for _ in run.epochs(parameters.epochs):
        for (inputs,) in batches:
            yield step(net, optimizer, inputs)


def printing(run, parameters):
    """Prints very much, and dies of it if it forgets."""
    model, optimizer, batches = made(run)
    print("begins here")  # noqa: T201
    for _ in run.epochs(parameters.epochs):
        for (inputs,) in batches:
            for _ in range(32):
                os.write(1, b"x" * 2**20)
            if parameters.forgets:
                os.write(1, b"\nends here\n")
                os.kill(os.getpid(), signal.SIGKILL)
            yield step(model, optimizer, inputs)


class Rows(IterableDataset):
    """Has no state: a resume reads the batches before its step again."""

    def __iter__(self):
        yield from INPUTS


def stream(run, parameters):
    model, optimizer, _ = made(run)
    batches = run.loader("rows", Rows(), batch_size=4)
    for _ in run.epochs(parameters.epochs):
        for inputs in batches:
            yield step(model, optimizer, inputs)


def counter(run, parameters):
    model, optimizer, batches = made(run, Counting())
    for _ in run.epochs(parameters.epochs):
        for (inputs,) in batches:
            yield step(model, optimizer, inputs)


def own_generator(run, parameters):
    model, optimizer, batches = made(run)
    noise = torch.Generator().manual_seed(run.seed)
    for _ in run.epochs(parameters.epochs):
        for (inputs,) in batches:
            yield step(model, optimizer, inputs + torch.rand(2, generator=noise))


def noisy(examples):
    return default_collate(examples)[0] + np.random.random()


def worker_numpy(run, parameters):
    model, optimizer, _ = made(run)
    batches = run.loader(
        "noisy", TensorDataset(INPUTS), batch_size=4, num_workers=2, collate_fn=noisy,
        is_random=False,
    )  # fmt: skip
    for _ in run.epochs(parameters.epochs):
        for inputs in batches:
            yield step(model, optimizer, inputs.float())


def scheduler(run, parameters):
    model, optimizer, batches = made(run)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 24)
    for _ in run.epochs(parameters.epochs):
        for (inputs,) in batches:
            metrics = step(model, optimizer, inputs)
            schedule.step()
            yield metrics


def ema(run, parameters):
    model, optimizer, batches = made(run)
    average = AveragedModel(model, avg_fn=lambda old, new, _: 0.9 * old + 0.1 * new)
    for _ in run.epochs(parameters.epochs):
        for (inputs,) in batches:
            metrics = step(model, optimizer, inputs)
            average.update_parameters(model)
            yield metrics | {"averaged": average.module.layer.bias.detach()}


def iterable(run, parameters):
    model, optimizer, _ = made(run)
    batches = iter(DataLoader(TensorDataset(INPUTS.repeat(8, 1)), batch_size=4))
    for _ in run.steps("steps", 6 * parameters.epochs):
        (inputs,) = next(batches)
        yield step(model, optimizer, inputs)


def sets(run, parameters):
    model, optimizer, batches = made(run)
    vocabulary = list({"one", "two", "three", "four", "five", "six"})
    for _ in run.epochs(parameters.epochs):
        for (inputs,) in batches:
            yield step(model, optimizer, inputs, 1 + vocabulary.index("two"))


def clock(run, parameters):
    model, optimizer, batches = made(run)
    salt = time.time() % 1000
    for _ in run.epochs(parameters.epochs):
        for (inputs,) in batches:
            yield step(model, optimizer, inputs, 1 + salt / 1000)


def running_sum(run, parameters):
    model, optimizer, batches = made(run)
    total = 0.0
    for _ in run.epochs(parameters.epochs):
        for (inputs,) in batches:
            metrics = step(model, optimizer, inputs)
            total += metrics["train_loss"].item()
            yield metrics | {"total": total}


def unseeded(run, parameters):
    model, optimizer, batches = made(run)
    salt = os.urandom(1)[0]
    for _ in run.epochs(parameters.epochs):
        for (inputs,) in batches:
            yield step(model, optimizer, inputs, 1 + salt / 256)


class Pace:
    """Has a state, but not all of it."""

    def __init__(self):
        self.factor, self.calls = 1.0, 0

    def next(self):
        self.calls += 1
        self.factor *= 0.9
        return self.factor + self.calls

    def state_dict(self):
        return {"factor": self.factor}

    def load_state_dict(self, state):
        self.factor = state["factor"]


def kept_attribute(run, parameters):
    model, optimizer, batches = made(run, lr=0.01)
    pace = run.keep("pace", Pace())
    for _ in run.epochs(parameters.epochs):
        for (inputs,) in batches:
            yield step(model, optimizer, inputs, pace.next())


def global_counter(run, parameters):
    model, optimizer, batches = made(run)
    for _ in run.epochs(parameters.epochs):
        for (inputs,) in batches:
            STEPS["taken"] += 1
            yield step(model, optimizer, inputs, 1 / STEPS["taken"])


def ingredients(parameters, context):
    model = Counting()
    return Ingredients(
        model=model,
        train=Examples((INPUTS,), INPUTS.sum(1, keepdim=True)),
        validation=Examples((INPUTS,), INPUTS.sum(1, keepdim=True)),
        loss=nn.functional.mse_loss,
    )


class Growing(torch.utils.data.Dataset):
    """Its examples depend on how many were read."""

    def __init__(self):
        self.num_read = 0

    def __len__(self):
        return len(INPUTS)

    def __getitem__(self, index):
        self.num_read += 1
        return INPUTS[index] + self.num_read / 100


def dataset_counter(run, parameters):
    model, optimizer, _ = made(run)
    batches = run.loader("growing", Growing(), batch_size=4)
    for _ in run.epochs(parameters.epochs):
        for inputs in batches:
            yield step(model, optimizer, inputs)


def nested_sum(run, parameters):
    model, optimizer, batches = made(run)

    def epochs():
        number = 0
        for _ in run.epochs(parameters.epochs):
            for (inputs,) in batches:
                number += 1
                yield step(model, optimizer, inputs, 1 / number)

    yield from epochs()


def cycle(run, parameters):
    model, optimizer, batches = made(run)
    factors = itertools.cycle([1.0, 0.5, 0.1])
    for _ in run.epochs(parameters.epochs):
        for (inputs,) in batches:
            yield step(model, optimizer, inputs, next(factors))


def weights_dict(run, parameters):
    model, optimizer, batches = made(run)
    average = {name: each.clone() for name, each in model.state_dict().items()}
    for _ in run.epochs(parameters.epochs):
        for (inputs,) in batches:
            metrics = step(model, optimizer, inputs)
            for name, each in model.state_dict().items():
                average[name].lerp_(each, 0.1)
            yield metrics | {"averaged": average["layer.bias"].clone()}


def late_generator(run, parameters):
    model, optimizer, batches = made(run)
    for _ in run.epochs(parameters.epochs):
        for (inputs,) in batches:
            if not hasattr(model, "noise"):
                model.noise = np.random.default_rng(run.seed)
            yield step(model, optimizer, inputs + model.noise.random())


def epoch_scheduler(run, parameters):
    model, optimizer, batches = made(run)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, parameters.drop_epochs, gamma=0.5)
    for _ in run.epochs(parameters.epochs):
        for (inputs,) in batches:
            yield step(model, optimizer, inputs)
        schedule.step()
        yield {"rate": schedule.get_last_lr()[0]}


def date(run, parameters):
    model, optimizer, batches = made(run)
    month = datetime.date.today().month  # noqa: DTZ011 - what is planted
    for _ in run.epochs(parameters.epochs):
        for (inputs,) in batches:
            yield step(model, optimizer, inputs, 1 + month / 12)


def scaled(run, parameters):
    """Keeps a gradient scaler whose scale grows, unless it forgets it."""
    model, optimizer, batches = made(run)
    scaler = torch.amp.GradScaler("cpu", 2.0, growth_interval=3)
    if not parameters.forgets:
        run.keep("scaler", scaler)
    for _ in run.epochs(parameters.epochs):
        for (inputs,) in batches:
            loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            yield {"train_loss": loss.detach(), "scale": scaler.get_scale()}


class Lazy(Net):
    """Its sizes are those of the first batch."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d(), nn.LazyLinear(1))


def lazy(run, parameters):
    model, optimizer, batches = made(run, Lazy())
    for _ in run.epochs(parameters.epochs):
        for (inputs,) in batches:
            yield step(model, optimizer, inputs)


def counted(run, parameters):
    model, optimizer, batches = made(run)
    for _ in run.epochs(parameters.epochs):
        for number, (inputs,) in enumerate(batches, 1):
            yield step(model, optimizer, inputs, 1 / number)


def zipped(run, parameters):
    model, optimizer, batches = made(run)
    for _ in run.epochs(parameters.epochs):
        for (inputs,), factor in zip(batches, np.linspace(1, 0.1, 9), strict=False):
            yield step(model, optimizer, inputs, factor)
