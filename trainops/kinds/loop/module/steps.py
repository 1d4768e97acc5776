"""Optimizer steps over a window of batches."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.optim import Optimizer

from trainops.kinds.loop.module.average import WeightAverage
from trainops.kinds.loop.module.base import TrainingModule
from trainops.kinds.loop.module.optimization import Schedule
from trainops.kinds.loop.module.replicas import Metrics
from trainops.kinds.loop.module.requirements import ONLY, parameters_of, require_turns
from trainops.kinds.loop.replicas import Number, Replicas
from trainops.kinds.loop.run import Run
from trainops.kinds.loop.settings import ModuleParameters
from trainops.learning.optimizer_state import needs_closure

Window: TypeAlias = Sequence[tuple[Any, Number]]  # batches, and their shares of the examples
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


class OptimizerSteps:
    """Takes a step of each optimizer whose turn it is; keeps the scaler and the average."""

    def __init__(
        self,
        run: Run,
        module: TrainingModule,
        optimizers: Mapping[str, Optimizer],
        schedules: Sequence[Schedule],
        parameters: ModuleParameters,
        replicas: Replicas,
    ) -> None:
        self._module, self._optimizers, self._parameters = module, optimizers, parameters
        self._norms = run.norms
        run.norms.require_known(parameters.max_grad_norm is not None, "max_grad_norm")
        self._replicas = replicas
        self._schedules = [each for each in schedules if each.interval == "step"]
        self._stepped = {name: parameters_of(each) for name, each in optimizers.items()}
        self._with_closure = {name for name, each in optimizers.items() if needs_closure(each)}
        self._autocast = autocast(run.device, parameters)
        self._scaler: torch.amp.GradScaler | None = None
        self._is_scaled = False  # an optimizer has stepped by scaled gradients in this step
        if parameters.precision == "fp16":
            self._scaler = run.keep("scaler", torch.amp.GradScaler(run.device.type))
        self.average: WeightAverage | None = None
        if parameters.ema_decay is not None:
            self.average = run.keep("average", WeightAverage(module, parameters.ema_decay))

    def take(self, batches: Sequence[Any], step: int) -> Metrics:
        """Take step number `step`; return the metrics of this window of batches."""
        metrics: Metrics = {}
        shares = self._replicas.shares([self._module.num_examples(each) for each in batches])
        window = list(zip(batches, shares, strict=True))
        given = self._module.turns(step, list(self._optimizers))
        turns = require_turns(given, step, self._optimizers)
        for name in turns:
            metrics |= self._turn(name, window)
        if self._scaler is not None and self._is_scaled:
            self._scaler.update()
            self._is_scaled = False
        for each in self._schedules:
            if any(each.scheduler.optimizer is self._optimizers[name] for name in turns):
                each.scheduler.step()
        if self.average is not None:
            self.average.add(self._module)
        return metrics

    def _turn(self, name: str, window: Window) -> Metrics:
        optimizer = self._optimizers[name]
        if name in self._with_closure:
            found: list[Metrics] = []
            optimizer.step(lambda: self._closure(name, window, found))
            metrics = found[0]
        else:
            metrics = self._gather(name, window)
            if self._scaler is None or not self._has_gradients(name):
                optimizer.step()
            else:
                self._scaler.step(optimizer)
                self._is_scaled = True
        self._module.zero_grad()
        return {self._metric(name, each): value for each, value in metrics.items()}

    def _closure(self, name: str, window: Window, found: list[Metrics]) -> float:
        self._module.zero_grad()
        found.append(self._gather(name, window))
        return float(self._replicas.mean(found[-1]["loss"]))  # the same in all ranks

    def _gather(self, name: str, window: Window) -> Metrics:
        """Let the gradients be those of the mean over all examples of the window, and clip them.

        The window has the batches of all ranks; the metrics are the part of this one.
        """
        metrics: Metrics = {}
        for number, (batch, share) in enumerate(window, start=1):
            with self._replicas.reducing(is_last=number == len(window)):
                with self._autocast:
                    loss, found = self._replicas.step(batch, *([] if name == ONLY else [name]))
                loss = loss * share
                (loss if self._scaler is None else self._scaler.scale(loss)).backward()
            for key, value in found.items():
                metrics[key] = metrics.get(key, 0.0) + value * share
        self._clip(name)
        return metrics

    def _has_gradients(self, name: str) -> bool:
        """Whether an optimizer has something to step by: its parameters may all be frozen."""
        return any(each.grad is not None for each in self._stepped[name])

    def _clip(self, name: str) -> None:
        if not self._has_gradients(name):  # torch refuses to unscale or clip nothing
            return
        norm, value = self._parameters.max_grad_norm, self._parameters.max_grad_value
        if self._scaler is not None and (norm is not None or value is not None):
            self._scaler.unscale_(self._optimizers[name])
        if norm is not None:
            found = nn.utils.clip_grad_norm_(self._stepped[name], norm)
            self._norms.check(found, is_scaled=self._scaler is not None)
        if value is not None:
            nn.utils.clip_grad_value_(self._stepped[name], value)

    def _metric(self, optimizer: str, name: str) -> str:
        if name == "loss":
            return "train_loss" if optimizer == ONLY else f"{optimizer}_loss"
        return name


def autocast(device: torch.device, parameters: ModuleParameters) -> torch.autocast:
    precision = AUTOCAST.get(parameters.precision)
    return torch.autocast(device.type, precision, enabled=precision is not None)
