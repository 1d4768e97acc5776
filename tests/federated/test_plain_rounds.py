"""Federated averaging as a plain PyTorch loop: what rounds without privacy come to.

The engine keeps parameters as one vector and moves them with kernels of its own, so that sums have
another order: in float64 no number differs by more than rounding.
"""

import copy
import hashlib

import pytest
import torch
from torch import nn

from tests.federated.runs import make_job

CONFIG = {
    "rounds": 3, "clients": 4, "local_epochs": 2, "batch_size": 5, "learning_rate": 0.05,
    "partition": {"by": "dirichlet", "alpha": 1.0}, "parameters": {"dropout": 0.0},
}  # fmt: skip
WAYS = {
    "plain": {"optimizer": "sgd"},
    "momentum and decay": {"optimizer": "sgd", "momentum": 0.9, "weight_decay": 0.1},
    "adam": {"optimizer": "adam", "weight_decay": 0.1},
    "adamw": {"optimizer": "adamw", "weight_decay": 0.1},
    "half of the clients": {"optimizer": "sgd", "fraction": 0.5},
    "near the server's": {"server": {"strategy": "fedprox", "proximal": 2.0}},
    "half a step of the server": {"server": {"strategy": "fedavg", "learning_rate": 0.5}},
    "at once": {"optimizer": "sgd", "batched_clients": True},
    "at once, by adam": {"optimizer": "adam", "batched_clients": True},
    "at once, near the server's": {"batched_clients": True,
                                   "server": {"strategy": "fedprox", "proximal": 2.0}},
}  # fmt: skip


@pytest.fixture(autouse=True)
def _double_precision():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("way", WAYS)
def test_rounds(way):
    torch.manual_seed(7)
    job = make_job(**{"optimizer": "sgd", "server": {"strategy": "fedavg"}, **CONFIG, **WAYS[way]})
    for number in range(1, 4):
        chosen, weights = job.progress.chosen, model_of(job)
        points = {}
        while len(job.progress.history) < number:
            points = job.advance()
        expected, losses = plain_round(job, copy.deepcopy(weights), chosen, number)
        for name, value in model_of(job).items():
            torch.testing.assert_close(value, expected[name], rtol=1e-10, atol=1e-12)
        assert points["train_loss"] == pytest.approx(losses["train"], rel=1e-9)
        assert points["val_loss"] == pytest.approx(losses["val"], rel=1e-9)
        of_clients = {name: value for name, value in points.items() if name.endswith("/train_loss")}
        assert of_clients == {
            f"clients/{client}/train_loss": pytest.approx(loss, rel=1e-9)
            for client, loss in losses["clients"].items()
        }


def model_of(job):
    return {name: each.clone() for name, each in job.state_dict()["model"].items()}


def network(weights):
    """Return the model of the recipe, without its layers for noise, with these weights."""
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Dropout(0.0), nn.Linear(5, 3))
    model.load_state_dict(weights)
    return model


def plain_round(job, weights, chosen, number):
    """Return the server's next model, and the mean losses of the round and of its clients."""
    config, train = job.config, job.context.train
    updates, counts, losses = [], [], {}
    for client in chosen:
        part = job.context.parts[client]
        model = network(weights)
        optimizer = torchs(config, model)
        loss_sum = 0.0
        for epoch in range(config.local_epochs):
            order = part[permutation(len(part), config.seed, number, client, epoch)]
            for batch in order.split(config.batch_size):
                loss = step(config, model, optimizer, weights, train, batch)
                loss_sum += loss * len(batch) / config.local_epochs
        updates.append({name: each - weights[name] for name, each in model.state_dict().items()})
        counts.append(len(part))
        losses[client] = loss_sum / len(part)
    rate = config.server.learning_rate
    following = {
        name: before + rate * mean([each[name] for each in updates], counts)
        for name, before in weights.items()
    }
    held = job.context.validation
    judged = nn.functional.cross_entropy(network(following)(*held.inputs), held.targets)
    train_loss = mean(losses.values(), counts)
    return following, {"train": train_loss, "val": judged.item(), "clients": losses}


def mean(values, counts):
    """Return the weighted mean of tensors or numbers."""
    return sum(count * each for count, each in zip(counts, values, strict=True)) / sum(counts)


def step(config, model, optimizer, weights, train, batch):
    """Make a client's step; return the mean loss of its batch."""
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(train.inputs[0][batch]), train.targets[batch])
    away = sum(
        ((each - weights[name]) ** 2).sum() for name, each in model.named_parameters()
    )  # FedProx, equation 2
    pull = config.server.proximal / 2 if config.server.strategy == "fedprox" else 0.0
    (loss + pull * away).backward()
    optimizer.step()
    return loss.item()


def torchs(config, model):
    settings = {"lr": config.learning_rate, "weight_decay": config.weight_decay}
    if config.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), momentum=config.momentum, **settings)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[config.optimizer]
    return kind(model.parameters(), **settings)


def permutation(count, seed, number, client, epoch):
    """Return the order of a client's local epoch, a draw that follows from what it is for."""
    purpose = f"{seed}/order/{number}/{client}/{epoch}".encode()
    digest = hashlib.blake2b(purpose, digest_size=8).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "big") % 2**63)
    return torch.randperm(count, generator=generator)
