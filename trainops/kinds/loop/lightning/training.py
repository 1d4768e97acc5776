"""The loop that trains a LightningModule: the order of Lightning's Trainer, with safe points.

A step is an optimizer step (of manual optimization: a batch), or a batch of a validation.
"""

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

from lightning.pytorch import Callback, LightningDataModule, LightningModule
from lightning.pytorch.utilities import rank_zero_only

from trainops.kinds.loop.lightning.callbacks import CallbackAttributes, LightningHooks
from trainops.kinds.loop.lightning.logged import Logged, LoggedValues
from trainops.kinds.loop.lightning.manual import ManualOptimizer
from trainops.kinds.loop.lightning.optimizers import configured
from trainops.kinds.loop.lightning.preparation import keep_module, loaders
from trainops.kinds.loop.lightning.requirements import (
    clips_by_norm,
    overrides,
    require_module,
    require_optimizers,
    require_ranks,
)
from trainops.kinds.loop.lightning.schedules import Schedules
from trainops.kinds.loop.lightning.steps import BatchSteps
from trainops.kinds.loop.lightning.view import TrainerView
from trainops.kinds.loop.passes import Passes
from trainops.kinds.loop.reading import Reading
from trainops.kinds.loop.replicas import Reductions
from trainops.kinds.loop.run import Run, Yielded
from trainops.kinds.loop.trainer_settings import LightningParameters
from trainops.learning.modes import with_modes
from trainops.runtime.errors import IncompatibleState

BEGINNING = {
    "global_step": 0, "batch": 0, "has_begun": False, "is_gathering": False,
    "is_validating": False, "validated": 0, "should_stop": False, "follows_batch_samplers": True,
}  # fmt: skip
P = TypeVar("P", bound=LightningParameters)
Pair: TypeAlias = tuple[LightningModule, LightningDataModule]
WithCallbacks: TypeAlias = tuple[LightningModule, LightningDataModule | None, Sequence[Callback]]
Made: TypeAlias = LightningModule | Pair | WithCallbacks
Steps: TypeAlias = Generator[Yielded, None, None]


def lightning_loop(
    make: Callable[[Run, P], Made], *, shards_itself: bool = False
) -> Callable[[Run, P], Steps]:
    """Return the loop that trains what `make(run, parameters)` returns.

    That is a LightningModule with its loaders, a pair of a LightningModule and a DataModule, or
    the two (the second may be None) with a list of callbacks. `shards_itself`: of several ranks,
    each has other examples of its iterable datasets.
    """

    def train(run: Run, parameters: P) -> Steps:
        if run.num_ranks > 1:
            rank_zero_only.rank = run.rank  # type: ignore[attr-defined]  # of the modules' decorator
        made = make(run, parameters)
        given: tuple[Any, ...] = made if isinstance(made, tuple) else (made,)
        module, data = (*given, None)[:2]
        callbacks: Sequence[Callback] = given[2] if len(given) > 2 else ()
        training = LightningTraining(
            run, module, data, parameters, callbacks, shards_itself=shards_itself
        )
        yield from training.epochs()

    return train


class LightningTraining:
    """Drives the hooks of one module; `progress` is kept and decides what a resume repeats."""

    def __init__(
        self,
        run: Run,
        module: LightningModule,
        data: LightningDataModule | None,
        settings: LightningParameters,
        callbacks: Sequence[Callback] = (),
        *,
        shards_itself: bool = False,
    ) -> None:
        require_module(module, data, settings, run.device)
        run.norms.require_known(clips_by_norm(module, settings), "gradient_clip_val, by norm")
        self._module, self._settings, self._run = module, settings, run
        self._progress: dict[str, Any] = run.keep("progress", dict(BEGINNING))
        reductions = Reductions(run)
        self._logged = Logged(module, run.keep("logged", LoggedValues(run.num_ranks)), reductions)
        self._view = TrainerView(
            settings, self._progress, self._logged, module, data, reductions, run.log_every_steps
        )
        module.trainer = self._view  # type: ignore[assignment]
        self._hooks = LightningHooks(module, self._view, callbacks, run.monitors)
        reading = Reading(skip_undecodable=settings.skip_undecodable, shards_itself=shards_itself)
        found = loaders(run, module, data, self._hooks, settings, reading)
        self._train, self._validations = found.train, found.validations
        self._view.measure(found)
        if not run.is_sharded:  # else each unit moves when it is divided
            module.to(run.device)
        require_ranks(run, module, settings)
        self._steps = BatchSteps(run, module, data, self._view, self._logged, self._hooks)
        self._replicas = self._steps.replicas
        self._schedules = self._configure()
        attributes = keep_module(run, module, data, self._progress)
        self._hooks.call("on_fit_start")
        self._hooks.call("on_train_start")
        if self._hooks.callbacks:
            left_out = [module, data, *self._view.optimizers]
            run.keep("callbacks", CallbackAttributes(self._hooks.callbacks, left_out))
        attributes.begin(run.kept.values())

    def epochs(self) -> Steps:
        progress = self._progress
        for epoch in self._run.epochs(self._view.num_epochs):
            self._require_followed()
            self._view.current_epoch = epoch
            if self._is_over and not progress["has_begun"]:
                break  # a longer training ends where the shorter one was stopped
            if not progress["has_begun"]:
                self._hooks.call("on_train_epoch_start")
                progress["has_begun"] = True
            yield from self._epoch()
            show = partial(self._logged.show, [self._train])
            self._hooks.end_epoch("on_train_epoch_end", show)
            metrics = self._logged.end_epoch([self._train]) | self._logged.take()
            self._hooks.monitor_train_epoch()
            self._agree_on_stopping()
            if self._train.is_at_end:
                self._schedules.step("epoch", epoch + 1, plateaus=True)
            progress.update(has_begun=False, batch=0)
            self._view.current_epoch = epoch + 1  # as in Lightning at the end of the training
            if metrics:
                yield metrics
            if self._is_over:
                break
        self._hooks.call("on_train_end")
        self._hooks.call("on_fit_end")

    def _epoch(self) -> Steps:
        progress, every = self._progress, self._settings.accumulate_grad_batches
        for batch in self._train:
            progress["batch"] = self._index(self._train)
            number = progress["batch"] + 1
            self._view.is_at_end = self._train.is_at_end
            is_stepping = self._view.is_at_end or number % every == 0
            if not progress["is_validating"]:  # else this batch has been trained
                metrics = self._train_batch(batch, is_stepping=is_stepping)
                progress["is_gathering"] = not is_stepping
                if is_stepping:
                    self._agree_on_stopping()
                    yield metrics
            if self._is_validation_due(number):
                yield from self._validate(releases=is_stepping)
            if is_stepping:
                self._schedules.step("step", number, plateaus=True)
            progress["batch"] = number
            if self._is_over:
                return

    def _require_followed(self) -> None:
        """Raise IncompatibleState for a state of a version that did not follow batch samplers."""
        progress = self._progress
        if not progress["has_begun"] and not progress["global_step"]:
            progress["follows_batch_samplers"] = True
        if "follows_batch_samplers" in progress:
            return
        for each in (self._train, *self._validations):
            if each.has_batch_sampler:
                problem = f"the loader {each.name!r} has a batch sampler, and the version of the "
                problem += "checkpoint took batches of one example"
                allowed = "a new operation, which may start from the weights of this one"
                raise IncompatibleState(f"{problem}; allowed: {allowed}")

    @property
    def _is_over(self) -> bool:
        return bool(self._progress["should_stop"]) or self._view.has_reached_max_steps

    def _train_batch(self, batch: Any, *, is_stepping: bool) -> Yielded:
        index = self._progress["batch"]
        batch = self._steps.transfer(batch)
        output = self._steps.train(batch, index, is_stepping=is_stepping)
        if is_stepping:
            self._schedules.step("step", index + 1)
        if self._train.is_at_end:
            self._schedules.step("epoch", self._view.current_epoch + 1)
        self._steps.end(output, batch, index)
        loss = output.get("loss") if isinstance(output, dict) else output
        if not (is_stepping or loss is None):
            self._run.watch("train_loss", loss)
        return ({} if loss is None else {"train_loss": loss}) | self._logged.take()

    def _is_validation_due(self, number: int) -> bool:
        settings, progress = self._settings, self._progress
        if not self._validations:
            return False
        if (self._view.current_epoch + 1) % settings.check_val_every_n_epoch:
            return False
        is_asked = progress["is_validating"] or progress["should_stop"]
        interval = settings.val_check_interval
        return is_asked or (number % interval == 0 if interval else self._train.is_at_end)

    def _validate(self, *, releases: bool) -> Steps:
        progress = self._progress
        self._view.training, self._view.validating = False, True
        if not progress["is_validating"]:
            self._begin_validation(releases=releases)
        self._logged.stage = "validation"
        for number, loader in enumerate(self._validations):
            yield from self._validate_loader(number, loader)
        show = partial(self._logged.show, self._validations)
        self._hooks.end_epoch("on_validation_epoch_end", show)
        metrics = self._logged.end_epoch(self._validations)
        self._hooks.call("on_validation_end")
        self._agree_on_stopping()
        for name, is_training in progress.pop("modes").items():
            self._module.get_submodule(name).training = is_training
        if overrides(self._module, LightningModule, "on_validation_model_train"):
            self._module.on_validation_model_train()
        self._logged.stage, self._view.training, self._view.validating = "train", True, False
        progress["is_validating"] = False
        yield metrics | self._logged.take()

    def _validate_loader(self, number: int, loader: Passes) -> Steps:
        progress, is_one_of_several = self._progress, len(self._validations) > 1
        for batch in loader:
            is_counted = self._replicas.is_counted(loader)
            batch, index = self._steps.transfer(batch, number), self._index(loader)
            loader_index = number if is_one_of_several else None
            self._steps.validate(batch, index, loader_index, is_counted=is_counted)
            yield self._logged.take()
        if is_one_of_several and number == progress["validated"]:  # else before this attempt
            self._logged.end_loader(self._validations)
            progress["validated"] = number + 1

    def _begin_validation(self, *, releases: bool) -> None:
        module = self._module
        if releases:
            module.on_validation_model_zero_grad()
        modes = {name: each.training for name, each in with_modes(module)}
        self._progress.update(is_validating=True, validated=0, modes=modes)
        self._replicas.share_buffers()
        self._logged.stage = "validation"
        module.on_validation_model_eval()
        self._hooks.call("on_validation_start")
        self._hooks.call("on_validation_epoch_start")

    def _index(self, loader: Passes) -> int:
        """Return the number in the pass of this rank's batch."""
        return loader.numbers.start // self._replicas.num_ranks

    def _agree_on_stopping(self) -> None:
        """Stop all ranks where the module stops one, after the same step."""
        (self._progress["should_stop"],) = self._replicas.any([self._progress["should_stop"]])

    def _configure(self) -> Schedules:
        """Keep optimizers and schedulers, and give the module the trainer's side of its methods."""
        run, module, view = self._run, self._module, self._view
        optimizers, configs = configured(module.configure_optimizers())
        require_optimizers(run, module, optimizers)
        for number, optimizer in enumerate(optimizers):
            run.keep(f"optimizer_{number}", optimizer)
        for number, config in enumerate(configs):
            run.keep(f"scheduler_{number}", config.scheduler)
        view.configure(optimizers, configs)
        averaging = self._steps.averaging
        given = [
            ManualOptimizer(each, self._progress, averaging, self._hooks) for each in optimizers
        ]
        methods = {
            "log": self._logged.log,
            "optimizers": lambda *_, **__: given[0] if len(given) == 1 else given,
            "clip_gradients": self._steps.clip,
            "manual_backward": self._steps.backward,
        }
        for name, method in methods.items():
            setattr(module, name, method)
        return Schedules(module, configs, self._logged, self._replicas)
