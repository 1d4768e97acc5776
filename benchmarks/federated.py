"""A round of federated training, a private step, and the ledger, beside what others need.

All of one table run in turns, in one process, with one thread; medians, and the lowest and highest.
The bare loop is what one would write for a paper: it copies weights, trains, averages, evaluates,
and keeps nothing that could be resumed. Flower's simulation runs by itself afterwards, in the
environment of the interpreter that TRAINOPS_BENCH_FLOWER names (flwr[simulation] and torch).
"""

import json
import os
import subprocess
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import nn

from trainops.kind import KINDS
from trainops.kinds.federated.account import Account
from trainops.kinds.federated.job import FederatedJob
from trainops.kinds.federated.private import Noise, NoisyGradients
from trainops.kinds.federated.releases import Release
from trainops.kinds.federated.rng import Secrets
from trainops.learning.ingredients import Examples, Loss
from trainops.learning.tasks.unet import UNet, dice_and_entropy
from trainops.runtime import reproducibility

ROUNDS, STEPS, ENTRIES, FLOWER_ROUNDS = 31, 41, 10_000, 12
CLIENTS, BATCH, RATE = 10, 32, 0.1
Figures = dict[str, tuple[float, float, float]]
Network = tuple[Callable[[], nn.Module], torch.Tensor, torch.Tensor, Loss]


def main() -> dict[str, Any]:
    reproducibility.set_determinism(deterministic=True, threads=1)
    figures = {
        "round of 10 clients, ms": of_rounds(),
        "private step, MLP, ms": of_steps(*mlp()),
        "private step, CNN, ms": of_steps(*cnn()),
        "private step, U-Net, ms": of_steps(*unet()),
        f"ledger of {ENTRIES:,} entries, ms": of_ledger(),
    }
    for name, lines in figures.items():
        print(f"\n{name}")
        for what, (low, middle, high) in lines.items():
            print(f"  {what:32} {middle:9.3f}   {low:.3f} to {high:.3f}")
    return figures


def in_turns(tasks: Mapping[str, Callable[[], object]], times: int) -> Figures:
    """Return milliseconds: the lowest, the median, the highest; the first turn is not counted."""
    taken: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(times):
        for name, task in tasks.items():
            began = time.perf_counter()
            task()
            taken[name].append(1000 * (time.perf_counter() - began))
    return {name: (min(t[1:]), median(t[1:]), max(t[1:])) for name, t in taken.items()}


def of_rounds() -> Figures:
    job, together = make_job(), make_job(batched_clients=True)
    tasks = {
        "trainops": lambda: advance_round(job),
        "trainops, clients at once": lambda: advance_round(together),
        "bare loop": bare_loop(),
    }
    return in_turns(tasks, ROUNDS) | flower(job)


def flower(job: FederatedJob) -> Figures:
    """Return Flower's simulation of the same clients, where its interpreter is named."""
    interpreter = os.environ.get("TRAINOPS_BENCH_FLOWER")
    if not interpreter:
        return {}
    train, held_out = job.context.train, job.context.validation
    if held_out is None:
        raise ValueError("the recipe holds no examples back")
    arrays = {"held_inputs": held_out.inputs[0], "held_targets": held_out.targets}
    for number, part in enumerate(job.context.parts):
        arrays |= {
            f"inputs_{number}": train.inputs[0][part],
            f"targets_{number}": train.targets[part],
        }
    with TemporaryDirectory() as directory:
        path = Path(directory) / "clients.npz"
        np.savez(path, allow_pickle=False, **{name: each.numpy() for name, each in arrays.items()})
        command = [
            interpreter,
            str(Path(__file__).with_name("flower.py")),
            str(path),
            str(FLOWER_ROUNDS),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print((done.stderr.strip() or "Flower is not there").splitlines()[-1])
        return {}
    first, *others = (1000 * each for each in json.loads(done.stdout.splitlines()[-1])["seconds"])
    return {
        "Flower's simulation": (min(others), median(others), max(others)),
        "Flower's first round": (first, first, first),
    }


def make_job(**more: Any) -> FederatedJob:
    engine = KINDS["federated"]
    config = {"recipe": "federated_digits", "clients": CLIENTS, "rounds": 1000, "batch_size": BATCH,
            "learning_rate": RATE, "threads": 1, **more}  # fmt: skip
    job = engine.make_job(engine.parse_config(config))
    if not isinstance(job, FederatedJob):
        raise TypeError(type(job))
    return job


def advance_round(job: FederatedJob) -> None:
    number = job.progress.number
    while job.progress.number == number:
        job.advance()


def bare_loop() -> Callable[[], None]:
    """Return a round of FedAvg on the same examples, network and batches."""
    job = make_job()
    model, train, held_out = job.context.model, job.context.train, job.context.validation
    if held_out is None:
        raise ValueError("the recipe holds no examples back")
    inputs, targets, parts = train.inputs[0], train.targets, job.context.parts
    weights = {name: each.clone() for name, each in model.state_dict().items()}

    def one_round() -> None:
        nonlocal weights
        total = {name: torch.zeros_like(each) for name, each in weights.items()}
        for part in parts:
            model.load_state_dict(weights)
            model.train()
            optimizer = torch.optim.SGD(model.parameters(), RATE)
            for some in part[torch.randperm(len(part))].split(BATCH):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(inputs[some]), targets[some]).backward()
                optimizer.step()
            for name, each in model.state_dict().items():
                total[name] += each * (len(part) / len(targets))
        weights = total
        model.load_state_dict(weights)
        model.eval()
        with torch.no_grad():
            scores = model(held_out.inputs[0])
            nn.functional.cross_entropy(scores, held_out.targets).item()
            (scores.argmax(1) == held_out.targets).float().mean().item()

    return one_round


def mlp() -> Network:
    def make() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    return make, torch.rand(64, 1, 8, 8), torch.arange(64) % 10, nn.functional.cross_entropy


def cnn() -> Network:
    def make() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
            nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10),
        )  # fmt: skip

    return make, torch.rand(64, 1, 8, 8), torch.arange(64) % 10, nn.functional.cross_entropy


def unet() -> Network:
    """No chain: every example's own gradient is taken."""
    images = torch.rand(16, 1, 32, 32)
    return lambda: UNet(1, 8, "group"), images, (images > 0.7).float(), dice_and_entropy


def of_steps(
    make: Callable[[], nn.Module], inputs: torch.Tensor, targets: torch.Tensor, loss: Loss
) -> Figures:
    tasks = {
        "trainops": our_step(make(), inputs, targets, loss),
        "Opacus, hooks": opacus_step(make(), inputs, targets, loss, "hooks"),
        "Opacus, functorch": opacus_step(make(), inputs, targets, loss, "functorch"),
        "plain SGD, not private": plain_step(make(), inputs, targets, loss),
    }
    return in_turns(tasks, STEPS)


def our_step(
    model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, loss: Loss
) -> Callable[[], object]:
    noise = Noise(multiplier=1.0, max_grad_norm=1.0, expected_examples=len(inputs))
    gradients = NoisyGradients(model, loss, noise)
    optimizer, secrets = torch.optim.SGD(model.parameters(), 0.1), Secrets(b"", 1)
    examples, everyone = Examples((inputs,), targets), torch.arange(len(inputs))

    def step() -> None:
        gradients.fill(examples, everyone, lambda total: secrets.numbers_for(total, "step"))
        optimizer.step()

    return step


def opacus_step(
    model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, loss: Loss, mode: str
) -> Callable[[], object]:
    from opacus.grad_sample.utils import wrap_model
    from opacus.optimizers import DPOptimizer

    wrapped = wrap_model(model, grad_sample_mode=mode)
    optimizer = DPOptimizer(
        torch.optim.SGD(wrapped.parameters(), 0.1), noise_multiplier=1.0, max_grad_norm=1.0,
        expected_batch_size=len(inputs),
    )  # fmt: skip

    def step() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optimizer.zero_grad()
            loss(wrapped(inputs), targets).backward()
            optimizer.step()

    return step


def plain_step(
    model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, loss: Loss
) -> Callable[[], object]:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step() -> None:
        optimizer.zero_grad()
        loss(model(inputs), targets).backward()
        optimizer.step()

    return step


def of_ledger() -> Figures:
    entries = [entry(number) for number in range(ENTRIES)]
    whole = Account(1e-5)
    whole.add(entries)
    more = iter(range(ENTRIES, 10**9))

    def from_nothing() -> float:
        account = Account(1e-5)
        account.add(entries)
        return account.epsilon

    def one_more() -> float:
        whole.add([entry(next(more))])
        return whole.epsilon

    return in_turns({"all, from nothing": from_nothing, "one more": one_more}, STEPS)


def entry(number: int) -> Release:
    return Release(
        noise=f"{number:032x}", step=number, round=number // 10, client=number % 10,
        level="sample", noise_multiplier=1.0, sample_rate=0.01 * (1 + number % 3), steps=10,
    )  # fmt: skip
