"""Supervised training: one step is one update of the weights."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from trainops.kinds.training.config import TrainingConfig
from trainops.kinds.training.history import History
from trainops.kinds.training.progress import TrainingProgress
from trainops.kinds.training.trainer import Trainer
from trainops.learning.data import order
from trainops.learning.labels import require_labels
from trainops.learning.mean_metrics import MeanMetrics
from trainops.learning.modes import FORGOTTEN, require_places
from trainops.learning.shapes import require_same_shape
from trainops.learning.validation import Validation
from trainops.runtime import monitors
from trainops.runtime.checkpoint.stream import Stream
from trainops.runtime.devices import choose_device
from trainops.runtime.errors import IncompatibleState, NonFiniteLoss
from trainops.runtime.job import Metrics, StateDict
from trainops.runtime.throughput import Throughput


class TrainingJob:
    """A recipe in training.

    A step takes gradient_accumulation batches (fewer at the end of an epoch) and moves the weights
    once; the step that ends an epoch also validates. Safe points lie where the weights have just
    moved, so no gradient is ever half gathered in a state. The one before a validation has its
    cursor behind the epoch's last batch.
    """

    unit: ClassVar[str] = "step"
    is_same_when_plain: ClassVar[bool] = True  # there is one implementation

    def __init__(self, config: TrainingConfig, inputs: Mapping[str, Path]) -> None:
        self.config = config
        self.inputs = inputs
        self.device = choose_device(config.device)
        self.trainer = Trainer(config, inputs, self.device, constants={})
        self.progress = TrainingProgress(config, self.trainer.route)
        self.epoch_means = self.trainer.new_mean_metrics()
        self.logged_loss = MeanMetrics(["loss"], self.device)  # since the last logged point
        self.best_models: dict[str, dict[str, Tensor]] = {}  # by monitored metric
        self.origin: Mapping[str, Any] = {}  # where it began, if with another tool's file
        self.inexact: dict[str, str] = {}
        self.in_parts = False
        self._validation: Validation | None = None  # under way; no part of the state
        self._order: tuple[int, Tensor] | None = None  # of an epoch; a function of its number

    @property
    def step(self) -> int:
        return self.progress.cursor.optimizer_steps

    @property
    def total_steps(self) -> int:
        return self.progress.total_steps

    @property
    def place(self) -> str:
        if not self.is_evaluating:
            return self.progress.place
        if self._validation is None:
            return f"{self.progress.place}, before the validation"
        return f"{self.progress.place}, {self._validation.place}"

    @property
    def is_evaluating(self) -> bool:
        return self.progress.is_epoch_trained

    @property
    def checkpoint_steps(self) -> int:
        return self.config.checkpoint.every_epochs * self.trainer.route.steps_per_epoch

    @property
    def throughput(self) -> Throughput:
        return self.trainer.throughput

    def advance(self) -> Metrics:
        try:
            return self._advance()
        except (IndexError, RuntimeError) as error:
            require_labels(error, self._batch_at_work)
            raise

    def _advance(self) -> Metrics:
        if not self.is_evaluating:
            self._learn()
            if not self.progress.is_epoch_trained:
                return self._log() if self.step % self.config.log_every_steps == 0 else {}
            self._validation = None
            if self.in_parts and self.trainer.validation is not None:
                return {}
        validated = self._validate()
        return {} if validated is None else self._log() | self._finish_epoch(validated)

    def _learn(self) -> None:
        batches = self.trainer.route.batches(self._epoch_order(), self.progress.cursor.next_batch)
        sums = self.trainer.learn(batches, self.step + 1)
        num_samples = sum(map(len, batches))
        self.epoch_means.add(sums, num_samples)
        self.logged_loss.add(sums[:1], num_samples)
        self.progress.step_done(len(batches), num_samples)

    def _validate(self) -> dict[str, float] | None:
        """Validate, one batch at a time if `in_parts`; return the means once all are done."""
        if self.trainer.validation is None:
            return {}
        if self._validation is None:
            self._check_finite()
            self._validation = Validation(self.trainer)
        if not self._validation.go_on(in_parts=self.in_parts):
            return None
        means, self._validation = self._validation.averages.means(), None
        return self.trainer.in_units(means, "val")

    weights: ClassVar[Mapping[str, str]] = {"model": "model"}

    def state_dict(self) -> StateDict:
        self._check_finite()
        learned = self.trainer.state_dict()
        if not self.trainer.schedulers:
            del learned["scheduler"]
        return {
            "state": {
                **self.progress.to_state(self.trainer.learning_rate),
                "logged_loss": self.logged_loss.state_dict(),
                "epoch_means": self.epoch_means.state_dict(),
                "num_examples": self.trainer.route.num_examples,
                **({"modes": modes} if (modes := self.trainer.modes.state_dict()) else {}),
                **({"origin": dict(self.origin)} if self.origin else {}),
            },
            **learned,
            **({"history": self.progress.history.stream} if self.progress.cursor.epoch else {}),
            **{
                self.part_of(name): self.best_models[name]
                for name in self.progress.bests
                if name in self.best_models
            },
            **({"constants": constants} if (constants := self._constants()) else {}),
        }

    def load_state_dict(self, state: StateDict) -> None:
        state = {"scheduler": [], "constants": {}, **state}
        if missing := {"state", "model", "optimizer"} - state.keys():
            raise IncompatibleState(f"the state lacks {', '.join(sorted(missing))}")
        plain, constants = state["state"], state["constants"]
        trainer = self.trainer
        if constants != self._constants():  # what was measured then holds, not what is measured now
            trainer = Trainer(self.config, self.inputs, self.device, constants)
        trainer.check(state)
        _check_examples(plain, trainer.route.num_examples)
        learning_rate = float(state["optimizer"][0]["param_groups"][0]["lr"])
        history = History.from_part(state["history"]) if "history" in state else History()
        progress = TrainingProgress(self.config, trainer.route).from_state(
            plain, history, learning_rate
        )
        parts = {name: self.part_of(name) for name in progress.bests}
        _check_best_models(progress, parts, state)
        logged_loss, epoch_means = MeanMetrics(["loss"], self.device), trainer.new_mean_metrics()
        try:
            logged_loss.load_state_dict(plain["logged_loss"])
            epoch_means.load_state_dict(plain["epoch_means"])
        except (KeyError, TypeError, ValueError) as error:
            raise IncompatibleState(f"the running means cannot be read: {error!r}") from error
        require_places("modes", modes := plain.get("modes", {}))
        trainer.load_state_dict(state)
        trainer.modes.load_state_dict(modes)
        if "num_examples" not in plain and trainer.validation and trainer.modes.begin_in_eval:
            self.inexact["modes"] = FORGOTTEN
        self.trainer, self.progress, self._order, self._validation = trainer, progress, None, None
        self.logged_loss, self.epoch_means = logged_loss, epoch_means
        self.best_models = {n: _copy(state[part]) for n, part in parts.items() if part in state}
        self.origin = plain.get("origin") or {}

    def objects(self) -> Mapping[str, Any]:
        return self.trainer.objects()

    def result(self) -> Mapping[str, Any]:
        best = self.progress.best
        return {
            "recipe": self.config.recipe,
            "final": next(iter(self.progress.history.newest(1)), {}),
            "best": {
                "metric": self.config.monitor,
                "mode": self.config.mode,
                "value": best.metric,
                "epoch": best.epochs,
            },
            **self._further_result(),
            "epochs": self.progress.cursor.epoch,
            "steps": self.step,
            "samples_seen": self.progress.cursor.samples_seen,
            "stopped_early": self.progress.is_stopped_early,
            **({"stopped_by": self.progress.stopped_by} if self.progress.stopped_by else {}),
            "parameters": sum(each.numel() for each in self.trainer.model.parameters()),
            "artifacts": [
                f"{name}.pt"
                for name, part in self.state_dict().items()
                if name != "state" and not isinstance(part, Stream)
            ],
            "details": dict(self.trainer.ingredients.description),
        }

    def _further_result(self) -> dict[str, Any]:
        """Return the best value of each further monitored metric."""
        found = {
            name: {"mode": self.config.monitors[name], "value": best.metric, "epoch": best.epochs}
            for name, best in self.progress.further.items()
        }
        return {monitors.STATE_KEY: found} if found else {}

    def part_of(self, metric: str) -> str:
        """Return the part of the state that is the best model by a monitored metric."""
        is_first = metric == self.config.monitor
        return monitors.BEST_MODEL if is_first else monitors.part_of(metric)

    @property
    def _batch_at_work(self) -> str:
        if self._validation is not None:
            return (
                f"{self.progress.epoch_at_work}, validation batch {self._validation.num_done + 1}"
            )
        route, first = self.trainer.route, self.progress.cursor.next_batch
        last = min(first + route.batches_per_step, route.batches_per_epoch)
        batches = f"batch {last}" if last == first + 1 else f"batches {first + 1} to {last}"
        return f"{self.progress.epoch_at_work}, {batches} of {route.batches_per_epoch}"

    def _epoch_order(self) -> Tensor:
        epoch = self.progress.cursor.epoch
        if self._order is None or self._order[0] != epoch:
            num_examples = self.trainer.route.num_examples
            self._order = epoch, order(self.config.seed, epoch, num_examples)
        return self._order[1]

    def _log(self) -> dict[str, float]:
        """Return the loss since the last logged point, and start a new mean."""
        self._check_finite()
        metrics = self.trainer.in_units(self.logged_loss.means(), "train")
        self.logged_loss.reset()
        return metrics

    def _finish_epoch(self, validated: dict[str, float]) -> dict[str, float]:
        """Keep the best models, write the epoch's line; return the points to record."""
        trained = self.trainer.in_units(self.epoch_means.means(), "train")
        self.epoch_means.reset()
        self.trainer.epoch_done((trained | validated)[self.config.monitor])
        rate = {"learning_rate": self.trainer.learning_rate}
        if best := self.progress.epoch_done(trained | validated | rate):
            self.best_models |= dict.fromkeys(best, _copy(self.trainer.model.state_dict()))
        del trained["train_loss"]  # the curve has the loss since the last point instead
        return trained | validated | rate | {"epoch": float(self.progress.cursor.epoch)}

    def _check_finite(self) -> None:
        """Raise NonFiniteLoss if any loss since the last logged point was not finite."""
        if self.device.type == "cpu" or not self.logged_loss.count:
            return  # on the CPU every loss was looked at before the weights moved
        mean = self.logged_loss.means()["loss"]
        if not math.isfinite(mean):
            raise NonFiniteLoss(self.step, mean)

    def _constants(self) -> dict[str, Any]:
        return dict(self.trainer.ingredients.constants)


def _copy(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Return the weights as they are now, on the CPU: an alias would follow the training."""
    return {
        name: each.detach().to("cpu", copy=True) if isinstance(each, Tensor) else each
        for name, each in weights.items()
    }


def _check_examples(plain: Mapping[str, Any], number: int) -> None:
    """Raise IncompatibleState unless as many examples were trained; older states do not say it."""
    if (had := plain.get("num_examples", number)) != number:
        allowed = f"the data that give {had}, or a warm start"
        problem = f"the training had {had} examples; now it has {number}"
        raise IncompatibleState(f"{problem}; allowed: {allowed}")


def _check_best_models(
    progress: TrainingProgress, parts: Mapping[str, str], state: StateDict
) -> None:
    """Raise IncompatibleState unless each best model is there that was measured, and no other."""
    for name, part in parts.items():
        if (part in state) != (progress.bests[name].metric is not None):
            problem = "is there without its metric, or the other way round"
            raise IncompatibleState(f"the best model by {name} {problem}")
        if part in state:
            require_same_shape(state["model"], state[part], part)
