"""The loop that trains a TrainingModule."""

import logging
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import nullcontext
from typing import Any, TypeVar

from torch import nn
from torch.jit import ScriptModule
from torch.optim.lr_scheduler import ReduceLROnPlateau

from trainops.kinds.loop.module.base import TrainingModule
from trainops.kinds.loop.module.batch import to_device
from trainops.kinds.loop.module.optimization import Extent, Schedule
from trainops.kinds.loop.module.replicas import placed, replicas_of
from trainops.kinds.loop.module.requirements import (
    require_divisible,
    require_frozen,
    require_loaders,
    require_methods,
    require_optimizers,
    require_precision,
    require_ranks,
    require_schedules,
)
from trainops.kinds.loop.module.steps import OptimizerSteps
from trainops.kinds.loop.module.validation import ModuleValidation, metric_of
from trainops.kinds.loop.run import Run, Yielded
from trainops.kinds.loop.settings import ModuleParameters
from trainops.learning.compiling import always_compiled
from trainops.learning.measures import is_metric
from trainops.learning.modes import start_modes

log = logging.getLogger(__name__)
P = TypeVar("P", bound=ModuleParameters)


def module_loop(
    make: Callable[[Run, P], TrainingModule],
) -> Callable[[Run, P], Generator[Yielded, None, None]]:
    """Return the loop that trains the module which `make(run, parameters)` constructs."""

    def train(run: Run, parameters: P) -> Generator[Yielded, None, None]:
        yield from ModuleTraining(run, make(run, parameters), parameters).epochs()

    return train


def _compile(module: TrainingModule) -> None:
    models = list(_models_of(module))
    for each in models:
        # Dynamic kernels depend on the shapes seen before, shared limits on other models.
        each.compile(dynamic=False, isolate_recompiles=True)
    if not models:
        name = type(module).__name__
        log.warning("compile: %s has no model as an attribute, so nothing is compiled", name)


def _models_of(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the models in a module: the parts of containers, which are never called themselves."""
    for each in module.children():
        if is_metric(each) or isinstance(each, ScriptModule):
            continue
        if type(each).forward is nn.Module.forward:  # such as nn.ModuleList
            yield from _models_of(each)
        else:
            yield each


class ModuleTraining:
    """Epochs, accumulation windows, validations and schedules of one training.

    A step is an optimizer step, or a batch of a validation: a training can be stopped after each.
    `progress` is kept, and decides what remains to be done in an iteration that a resume repeats.
    """

    def __init__(self, run: Run, module: TrainingModule, parameters: ModuleParameters) -> None:
        require_precision(parameters, run.device)
        require_methods(module)
        start_modes(module, is_logged=run.rank == 0)  # it may freeze parameters
        self._run, self._module, self._parameters = run, placed(run, module), parameters
        self._train, validation = require_loaders(module.loaders(run), parameters)
        self._train.look_ahead()  # the last window of an epoch ends with it
        require_ranks(run, validation, parameters)
        if run.is_sharded:
            require_divisible(module, parameters)
        self._trainable = {name for name, each in module.named_parameters() if each.requires_grad}
        self._progress: dict[str, Any] = run.keep(
            "progress", {"step": 0, "is_validating": False, "is_stopped": False}
        )
        run.keep("model", module)
        optimizers = require_optimizers(module.optimizers(), parameters)
        for name, optimizer in optimizers.items():
            run.keep(name, optimizer)
        self._schedules = self._keep_schedules(optimizers, has_validation=validation is not None)
        self._replicas = replicas_of(run, module)
        steps = OptimizerSteps(run, module, optimizers, self._schedules, parameters, self._replicas)
        self._steps, self._validation = steps, None
        run.validates_module = validation is not None
        if validation is not None:
            self._validation = ModuleValidation(
                run, module, validation, steps.average, parameters, self._replicas
            )
        if parameters.compile:
            _compile(module)

    def epochs(self) -> Generator[Yielded, None, None]:
        is_compiled = self._parameters.compile
        with always_compiled("parameters.compile", "got true") if is_compiled else nullcontext():
            yield from self._epochs()

    def _epochs(self) -> Generator[Yielded, None, None]:
        every_epochs = self._parameters.validate_every_epochs
        for epoch in self._run.epochs(self._parameters.epochs):
            self._freeze(epoch)
            yield from self._epoch()
            if self._parameters.validate_every_steps is None and (epoch + 1) % every_epochs == 0:
                yield from self._validate()
            if self._progress["is_stopped"]:
                return
            for each in self._schedules:
                if each.interval == "epoch":
                    each.scheduler.step()

    def _epoch(self) -> Generator[Yielded, None, None]:
        window: list[Any] = []
        for batch in self._train:
            if not self._progress["is_validating"]:  # else this batch has been trained
                window.append(to_device(batch, self._run.device))
                if not self._is_complete(window):
                    continue
                metrics = self._steps.take(window, self._progress["step"])
                self._progress["step"] += 1
                window = []
                yield metrics
            every = self._parameters.validate_every_steps
            if every is not None and self._progress["step"] % every == 0:
                yield from self._validate()
            if self._progress["is_stopped"]:
                return

    def _is_complete(self, window: list[Any]) -> bool:
        return self._train.is_at_end or len(window) == self._parameters.accumulation

    def _validate(self) -> Generator[Yielded, None, None]:
        if self._validation is None:
            return
        self._progress["is_validating"] = True
        self._replicas.share_buffers()
        metrics = yield from self._validation.batches()
        self._progress["is_validating"] = False
        self._progress["is_stopped"] = self._validation.is_over(metrics)
        for each in self._schedules:
            if isinstance(each.scheduler, ReduceLROnPlateau):
                each.scheduler.step(metric_of(metrics, each.metric, each.field))
        yield metrics

    def _freeze(self, epoch: int) -> None:
        names = require_frozen(self._module.frozen(epoch), epoch, self._module)
        frozen = {
            each
            for place, each in self._module.named_parameters(remove_duplicate=False)
            if any(place == name or place.startswith(f"{name}.") for name in names)
        }
        for name, parameter in self._module.named_parameters():
            parameter.requires_grad_(name in self._trainable and parameter not in frozen)
        self._run.trained.begin({"model": self._module})  # a fork may freeze others

    def _keep_schedules(
        self, optimizers: Mapping[str, Any], *, has_validation: bool
    ) -> list[Schedule]:
        parameters, steps = self._parameters, None
        if (batches := self._train.source.length(0)) is not None:
            steps = parameters.epochs * -(-batches // parameters.accumulation)
        extent = Extent(parameters.epochs, steps)
        schedules = list(self._module.schedulers(optimizers, extent))
        require_schedules(schedules, optimizers, has_validation=has_validation)
        for number, each in enumerate(schedules):
            self._run.keep(f"schedule_{number}", each.scheduler)
        return schedules
