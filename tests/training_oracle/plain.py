"""Supervised training as a plain PyTorch loop, which the training engine must equal bit for bit.

Nothing of the engine is used: only torch, and the rules of docs/configuration.md and
docs/recipes.md.

- An epoch visits every training example once, in the order of a permutation that follows from the
  seed and the epoch's number. It is cut into batches of `batch_size`; the last one is shorter.
- A step is `gradient_accumulation` batches, fewer at the end of an epoch. Its loss is the mean over
  all of its examples, not the mean over its batches' means.
- The norm of all gradients together is clipped to `max_grad_norm`. Then the optimizer moves the
  weights, then the schedule moves the learning rate: both once for each step.
- An epoch ends with its validation: layers are in evaluation mode, and metrics are means over
  examples, not over batches.
- The best epoch is the first with the best finite value of `monitor`. Training stops early after
  `early_stopping_patience` epochs in a row that are not better than the best before them.

Gradients and weights have the engine's bits because the loss of a batch is scaled by the same
operations in the same order: mean x batch size / examples of the step.
"""

import copy
import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

Weights = dict[str, Tensor]


@dataclass
class Step:
    """One update of the weights."""

    learning_rate: float  # that the step was made with
    next_learning_rate: float
    weights: Weights  # after it
    optimizers: list[dict[str, Any]]  # their state dicts after it
    schedules: list[dict[str, Any]]
    loss: float  # the mean over its examples
    num_examples: int
    metrics: dict[str, float] | None = None  # of the epoch that it ended


@dataclass
class Training:
    """All steps of a training, and what it came to."""

    steps: list[Step] = field(default_factory=list)
    epochs: list[dict[str, float]] = field(default_factory=list)  # the metrics of each
    best_epoch: int | None = None  # counted from 1
    best_value: float | None = None
    best_weights: Weights | None = None
    epochs_waited: int = 0  # without improvement
    stopped_early: bool = False
    diverged: bool = False  # the step after the last one has a loss or gradient that is not finite


def train(made: Any, config: Any) -> Training:
    """Train what a recipe made, as the config says; `made` is changed."""
    done = Training()
    count = len(made.train.targets)
    steps_per_epoch = math.ceil(math.ceil(count / config.batch_size) / config.gradient_accumulation)
    optimizers = list(made.optimizers(made.model)) if made.optimizers else [optimizer(made, config)]
    schedules = make_schedules(made, config, optimizers, steps_per_epoch)
    for epoch in range(config.epochs):
        sums = Sums(made.measures)
        for batches in steps_of(permutation(config.seed, epoch, count), config):
            step = move(made, config, optimizers, schedules, batches, sums)
            if step is None:
                done.diverged = True
                return done
            done.steps.append(step)
        metrics = sums.means("train", made.loss_factor)
        if made.validation is not None:
            metrics |= validated(made, config.batch_size)
        judge(done, metrics, made.model, config)
        follow_plateau(schedules, metrics[config.monitor])
        done.steps[-1].metrics = metrics
        done.steps[-1].next_learning_rate = rate_of(optimizers)
        done.steps[-1].optimizers = states_of(optimizers)
        done.steps[-1].schedules = states_of(schedules)
        if done.stopped_early:
            break
    return done


def judge(done: Training, metrics: dict[str, float], model: nn.Module, config: Any) -> None:
    """Add an epoch; keep its weights if it is the best so far, and decide whether it is the last.

    Patience is counted from the best epoch, or from the start where none is finite.
    """
    done.epochs.append(metrics)
    value = metrics[config.monitor]
    if is_better(value, done.best_value, config.mode):
        done.best_epoch, done.best_value = len(done.epochs), value
        done.best_weights = copied(model)
        done.epochs_waited = 0
    else:
        done.epochs_waited += 1
    done.stopped_early = done.epochs_waited == config.early_stopping_patience


def follow_plateau(schedules: Sequence[Any], value: float) -> None:
    """Move the schedules that go by the monitored metric, once for each epoch."""
    for each in schedules:
        if isinstance(each, torch.optim.lr_scheduler.ReduceLROnPlateau):
            each.step(value)


def permutation(seed: int, epoch: int, count: int) -> Tensor:
    """Return the order of an epoch: a draw whose seed is a hash of the run's seed and the epoch."""
    digest = hashlib.blake2b(f"{seed}/epoch {epoch}".encode(), digest_size=8).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "big") % 2**63)
    return torch.randperm(count, generator=generator)


def steps_of(order: Tensor, config: Any) -> Iterator[list[Tensor]]:
    """Yield the batches of each step of an epoch."""
    batches = [
        order[first : first + config.batch_size]
        for first in range(0, len(order), config.batch_size)
    ]
    for first in range(0, len(batches), config.gradient_accumulation):
        yield batches[first : first + config.gradient_accumulation]


def move(
    made: Any, config: Any, optimizers: Sequence[Any], schedules: Sequence[Any],
    batches: Sequence[Tensor], sums: "Sums",
) -> Step | None:  # fmt: skip
    """Make one step; return None, with the weights as they were, where it is not finite."""
    examples, rate, loss_sum = sum(len(batch) for batch in batches), rate_of(optimizers), 0.0
    for each in optimizers:
        each.zero_grad()
    for batch in batches:
        inputs = [each[batch] for each in made.train.inputs]
        outputs, targets = made.model(*inputs), made.train.targets[batch]
        batch_sum = made.loss(outputs, targets) * len(batch)
        if not math.isfinite(batch_sum.item()):
            return None
        (batch_sum / examples).backward()
        loss_sum += batch_sum.item()
        sums.add(batch_sum, outputs.detach(), targets)
    if config.max_grad_norm is not None and not clipped(made.model, config.max_grad_norm):
        return None
    for each in optimizers:
        each.step()
    for each in schedules:
        if not isinstance(each, torch.optim.lr_scheduler.ReduceLROnPlateau):
            each.step()
    loss = loss_sum / examples * made.loss_factor
    states = states_of(optimizers), states_of(schedules)
    return Step(rate, rate_of(optimizers), copied(made.model), *states, loss, examples)


def clipped(model: nn.Module, max_norm: float) -> bool:
    """Scale all gradients to a common norm of at most max_norm; return whether it was finite."""
    gradients = [each.grad for each in model.parameters() if each.grad is not None]
    norms = torch.stack([torch.linalg.vector_norm(each) for each in gradients])
    norm = torch.linalg.vector_norm(norms)
    scale = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
    for each in gradients:
        each.mul_(scale)
    return math.isfinite(norm.item())


def optimizer(made: Any, config: Any) -> torch.optim.Optimizer:
    parameters = list(made.model.parameters())
    settings = {"lr": config.learning_rate, "weight_decay": config.weight_decay}
    if config.optimizer == "sgd":
        return torch.optim.SGD(parameters, momentum=config.momentum, **settings)
    if config.optimizer == "adam":
        return torch.optim.Adam(parameters, **settings)
    if config.optimizer == "adamw":
        return torch.optim.AdamW(parameters, **settings)
    raise ValueError(f"the loop has no optimizer {config.optimizer!r}")


def make_schedules(
    made: Any, config: Any, optimizers: Sequence[Any], steps_per_epoch: int
) -> list[Any]:
    """Return a schedule of each optimizer, which is moved once for each step."""
    total = config.epochs * steps_per_epoch
    if made.schedulers:
        return list(made.schedulers(optimizers, total))
    make = SCHEDULES[config.scheduler]
    return [make(each, config, total, steps_per_epoch) for each in optimizers] if make else []


def warmup_cosine(config: Any, total: int) -> Callable[[int], float]:
    """Return the factor of a step, counted from 0: a line up, then half a cosine down to 0."""
    rising = math.ceil(config.warmup_fraction * total)

    def factor(step: int) -> float:
        if step < rising:
            return (step + 1) / (rising + 1)
        share = min(1.0, (step - rising) / max(1, total - rising))
        return 0.5 * (1 + math.cos(math.pi * share))

    return factor


def onecycle(optimizer: Any, config: Any, total: int, _: int) -> Any:
    """Rise over the warmup's share of the steps, at least over one, then fall to the last step.

    The beta or momentum moves the other way, of an optimizer that has one.
    """
    return torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=config.learning_rate, total_steps=total + 1,
        pct_start=max(config.warmup_fraction, 1 / total),
        cycle_momentum="betas" in optimizer.defaults or optimizer.defaults.get("momentum", 0) > 0,
    )  # fmt: skip


SCHEDULES: dict[str, Callable[..., Any] | None] = {
    "none": None,
    "cosine": lambda each, config, total, steps: torch.optim.lr_scheduler.CosineAnnealingLR(
        each, T_max=total
    ),
    "step": lambda each, config, total, steps: torch.optim.lr_scheduler.StepLR(
        each, step_size=config.scheduler_step_epochs * steps, gamma=config.scheduler_factor
    ),
    "onecycle": onecycle,
    "warmup_cosine": lambda each, config, total, steps: torch.optim.lr_scheduler.LambdaLR(
        each, warmup_cosine(config, total)
    ),
}


class Sums:
    """Sums of the loss and of each measure over examples, in Python's numbers (float64)."""

    def __init__(self, measures: dict[str, Any]) -> None:
        self.measures = measures
        self.count = 0
        self.totals = dict.fromkeys(["loss", *measures], 0.0)

    def add(self, loss_sum: Tensor, outputs: Any, targets: Tensor) -> None:
        self.count += len(targets)
        self.totals["loss"] += loss_sum.item()
        for name, measure in self.measures.items():
            self.totals[name] += measure(outputs, targets).sum().item()

    def means(self, prefix: str, loss_factor: float) -> dict[str, float]:
        found = {f"{prefix}_{name}": total / self.count for name, total in self.totals.items()}
        found[f"{prefix}_loss"] *= loss_factor
        return found


def validated(made: Any, batch_size: int) -> dict[str, float]:
    """Return the metrics of the validation examples, in their own order."""
    sums, examples = Sums(made.measures), made.validation
    made.model.eval()
    with torch.no_grad():
        for first in range(0, len(examples.targets), batch_size):
            batch = slice(first, first + batch_size)
            outputs = made.model(*[each[batch] for each in examples.inputs])
            targets = examples.targets[batch]
            sums.add(made.loss(outputs, targets) * len(targets), outputs, targets)
    made.model.train()
    return sums.means("val", made.loss_factor)


def is_better(value: float, best: float | None, mode: str) -> bool:
    if not math.isfinite(value):
        return False
    if best is None:
        return True
    return value < best if mode == "min" else value > best


def states_of(parts: Sequence[Any]) -> list[dict[str, Any]]:
    return copy.deepcopy([each.state_dict() for each in parts])


def rate_of(optimizers: Sequence[Any]) -> float:
    return float(optimizers[0].param_groups[0]["lr"])


def copied(model: nn.Module) -> Weights:
    return {name: each.detach().clone() for name, each in model.state_dict().items()}
