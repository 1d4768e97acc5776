"""What a training module's loop computes equals a plain PyTorch loop, bit for bit."""

import copy
from dataclasses import replace
from itertools import islice
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional
from torch.utils.data import IterableDataset

from tests.engines.contract import undisturbed
from tests.loop.pair import Parameters
from tests.loop.pair_module import Examples, Pair, training_examples
from tests.loop.test_modules import case
from tests.thinning import quick_some
from trainops.kinds.loop.course import Course
from trainops.kinds.loop.run import Run
from trainops.runtime import reproducibility

SEED = 7  # that of the contract


def batches(name, examples, size):
    shuffle = name == "train" and not isinstance(examples, IterableDataset)
    run = Run(Course(lambda: None), seed=SEED, device=torch.device("cpu"), inputs={})
    found = run.loader(name, examples, batch_size=size, shuffle=shuffle).source
    return lambda epoch: list(found.items(epoch, 0))


def windows(epoch, size):
    rest = iter(epoch)
    while window := list(islice(rest, size)):
        yield window


class Plain:
    """The loop that a person would write for these settings."""

    def __init__(self, settings):
        reproducibility.seed_all(SEED)
        self.settings = settings
        self.net = Pair(None, settings)
        self.average = copy.deepcopy(self.net)
        self.passes = 0
        self.best, self.stale, self.is_over, self.step = None, 0, False, 0
        body, head = self.net.body.parameters(), self.net.head.parameters()
        if settings.optimizers == 1:
            self.optimizers = {"body": torch.optim.AdamW(self.net.parameters(), lr=0.05)}
        else:
            self.optimizers = {
                "body": torch.optim.AdamW(body, lr=0.05),
                "head": torch.optim.SGD(head, 0.05, momentum=0.9),
            }
        self.train = batches("train", training_examples(settings), settings.batch_size)
        self.validation = batches("validation", Examples(7), settings.batch_size)

    def run(self, schedules):  # noqa: C901 - as a person would write it
        per_step, per_epoch, plateau = schedules
        every = self.settings.validate_every_steps
        for epoch in range(self.settings.epochs):
            for parameter in self.net.body[0].parameters():
                parameter.requires_grad = epoch >= self.settings.frozen_epochs
            for window in windows(self.train(epoch), self.settings.accumulation):
                self.optimize(window, per_step)
                self.step += 1
                if every and self.step % every == 0:
                    self.validate(plateau)
                if self.is_over:
                    return
            if every is None:
                self.validate(plateau)
            if self.is_over:
                return
            for schedule in per_epoch:
                schedule.step()

    def optimize(self, window, schedules):
        examples = sum(len(batch["target"]) for batch in window)
        for name, optimizer in self.optimizers.items():
            if name == "head" and self.settings.rare and self.step % 3:
                continue
            optimizer.zero_grad()
            self.net.zero_grad()
            for batch in window:
                self.net.seen += len(batch["target"])
                with torch.autocast("cpu", torch.bfloat16, enabled=self.is_half):
                    scores = self.net.head(self.net.body(batch["inputs"]))
                    loss = functional.mse_loss(scores.float(), batch["target"])
                    loss = loss if name == "body" else loss.sqrt()
                (loss * (len(batch["target"]) / examples)).backward()
            self.clip([each for group in optimizer.param_groups for each in group["params"]])
            optimizer.step()
            for schedule in schedules:
                if schedule.optimizer is optimizer:
                    schedule.step()
        self.follow()

    def clip(self, weights):
        if self.settings.max_grad_norm:
            torch.nn.utils.clip_grad_norm_(weights, self.settings.max_grad_norm)
        if self.settings.max_grad_value:
            torch.nn.utils.clip_grad_value_(weights, self.settings.max_grad_value)

    def follow(self):
        decay = self.settings.ema_decay
        with torch.no_grad():
            for mean, new in zip(self.average.parameters(), self.net.parameters(), strict=True):
                mean.lerp_(new, 1 - decay if decay else 1.0)
            for mean, new in zip(self.average.buffers(), self.net.buffers(), strict=True):
                mean.copy_(new)

    def validate(self, plateau):
        net = self.average if self.settings.ema_decay else self.net
        net.eval()
        total = torch.zeros((), dtype=torch.float64)
        for batch in self.validation(self.passes):
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=self.is_half):
                scores = net.head(net.body(batch["inputs"])).float()
                error = functional.mse_loss(scores, batch["target"])
            total += error.double() * len(batch["target"])
        net.train()
        self.passes += 1
        self.loss = (total / 7).item()
        if self.best is None or self.loss < self.best:
            self.best, self.stale = self.loss, 0
        else:
            self.stale += 1
        self.is_over = self.stale >= (self.settings.patience or 1000)
        for schedule in plateau:
            schedule.step(self.loss)

    @property
    def is_half(self):
        return self.settings.precision == "bf16"


def no_schedules(plain):
    return [], [], []


def by_step(plain):
    optimizer = plain.optimizers["body"]
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=5)
    return [schedule], [], []


def by_epoch(plain):
    optimizer = plain.optimizers["body"]
    return [], [torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)], []


def on_plateau(plain):
    optimizer = list(plain.optimizers.values())[-1]
    return [], [], [torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)]


def by_turns(plain):
    optimizer = plain.optimizers["head"]
    return [torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)], [], []


ONE_CYCLE = {"name": "OneCycleLR", "options": {"max_lr": 0.1}}
HALVES = {"name": "StepLR", "interval": "epoch", "options": {"step_size": 1, "gamma": 0.5}}
PLATEAU = {"name": "ReduceLROnPlateau", "options": {"patience": 0}}
SETTINGS = {
    "plain": ({}, no_schedules),
    "accumulation": ({"accumulation": 4}, no_schedules),
    "clipped-norm": ({"max_grad_norm": 0.1, "accumulation": 3}, no_schedules),
    "clipped-value": ({"max_grad_value": 0.01, "optimizers": 2}, no_schedules),
    "average": ({"ema_decay": 0.7}, no_schedules),
    "half-precision": ({"precision": "bf16", "accumulation": 2}, no_schedules),
    "by-step": ({"schedule": ONE_CYCLE, "accumulation": 3}, by_step),
    "by-epoch": ({"schedule": HALVES, "epochs": 3}, by_epoch),
    "on-plateau": ({"second_schedule": PLATEAU, "epochs": 6, "optimizers": 2}, on_plateau),
    "frozen": ({"frozen_epochs": 2, "epochs": 3}, no_schedules),
    "two-in-turns": ({"optimizers": 2, "rare": True, "accumulation": 2}, no_schedules),
    "by-turns": (
        {"second_schedule": HALVES | {"interval": "step"}, "optimizers": 2, "rare": True},
        by_turns,
    ),
    "iterable": ({"iterable": "plain", "accumulation": 4, "epochs": 3}, no_schedules),
    "early": ({"epochs": 30, "patience": 2}, no_schedules),
    "often": ({"validate_every_steps": 4, "epochs": 3, "patience": 2}, no_schedules),
}


@pytest.mark.parametrize("name", quick_some(SETTINGS, every=5))
def test_a_module_is_trained_as_by_a_plain_loop(tmp_path, name):
    given, schedules = SETTINGS[name]
    found = case(**given)
    done = undisturbed(replace(found, config={**found.config, "device": "cpu"}), tmp_path)
    plain = Plain(Parameters.parse(found.config["parameters"]))
    plain.run(schedules(plain))
    saved = SimpleNamespace(
        **{
            each: torch.load(done.checkpoints[-1].path / f"{each}.pt", weights_only=True)  # noqa: TID251
            for each in ("model", *(["average"] if plain.settings.ema_decay else []))
        }
    )
    require_equal(plain.net.state_dict(), saved.model)
    if plain.settings.ema_decay:
        require_equal(plain.average.state_dict(), saved.average)
    last = [each.metrics["val_loss"] for each in done.progress if "val_loss" in each.metrics][-1]
    assert last == plain.loss


def require_equal(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name
