"""Supervised training: one step is one update of the weights."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from trainops.kinds.training.config import TrainingConfig
from trainops.kinds.training.history import History
from trainops.kinds.training.learner import Learner
from trainops.kinds.training.record import Record
from trainops.learning.averages import Averages
from trainops.learning.data import order
from trainops.learning.shapes import require_same_shape
from trainops.learning.validation import Validation
from trainops.runtime.checkpoint.stream import Stream
from trainops.runtime.devices import choose_device
from trainops.runtime.errors import IncompatibleState, NonFiniteLoss
from trainops.runtime.job import Metrics, StateDict


class TrainingJob:
    """A recipe in training.

    A step takes gradient_accumulation batches (fewer at the end of an epoch) and moves the weights
    once; the step that ends an epoch also validates. Safe points lie where the weights have just
    moved, so no gradient is ever half gathered in a state. The one before a validation has its
    cursor behind the epoch's last batch.
    """

    unit: ClassVar[str] = "step"

    def __init__(self, config: TrainingConfig, inputs: Mapping[str, Path]) -> None:
        self.config = config
        self.inputs = inputs
        self.device = choose_device(config.device)
        self.learner = Learner(config, inputs, self.device, constants={})
        self.record = Record(config, self.learner.route)
        self.epoch_means = self.learner.new_averages()
        self.logged_loss = Averages(["loss"], self.device)  # since the last logged point
        self.best_model: dict[str, Tensor] | None = None
        self.origin: Mapping[str, Any] = {}  # where it began, if with another tool's file
        self.in_parts = False
        self._validation: Validation | None = None  # under way; no part of the state
        self._order: tuple[int, Tensor] | None = None  # of an epoch; a function of its number

    @property
    def step(self) -> int:
        return self.record.cursor.optimizer_steps

    @property
    def total_steps(self) -> int:
        return self.record.total_steps

    @property
    def place(self) -> str:
        if not self.is_evaluating:
            return self.record.place
        if self._validation is None:
            return f"{self.record.place}, before its validation"
        return f"{self.record.place}, {self._validation.place}"

    @property
    def is_evaluating(self) -> bool:
        return self.record.is_epoch_trained

    @property
    def checkpoint_steps(self) -> int:
        return self.config.checkpoint.every_epochs * self.learner.route.steps_per_epoch

    def advance(self) -> Metrics:
        if not self.is_evaluating:
            self._learn()
            if not self.record.is_epoch_trained:
                return self._log() if self.step % self.config.log_every_steps == 0 else {}
            self._validation = None
            if self.in_parts and self.learner.validation is not None:
                return {}
        validated = self._validate()
        return {} if validated is None else self._log() | self._finish_epoch(validated)

    def _learn(self) -> None:
        batches = self.learner.route.batches(self._epoch_order(), self.record.cursor.next_batch)
        sums = self.learner.learn(batches, self.step + 1)
        num_samples = sum(map(len, batches))
        self.epoch_means.add(sums, num_samples)
        self.logged_loss.add(sums[:1], num_samples)
        self.record.step_done(len(batches), num_samples)

    def _validate(self) -> dict[str, float] | None:
        """Validate, one batch at a time if `in_parts`; return the means once all are done."""
        if self.learner.validation is None:
            return {}
        if self._validation is None:
            self._check_finite()
            self._validation = Validation(self.learner)
        if not self._validation.go_on(in_parts=self.in_parts):
            return None
        means, self._validation = self._validation.averages.means(), None
        return self.learner.in_units(means, "val")

    def state_dict(self) -> StateDict:
        self._check_finite()
        learned = self.learner.state_dict()
        if not self.learner.schedulers:
            del learned["scheduler"]
        return {
            "state": {
                **self.record.to_state(self.learner.learning_rate),
                "logged_loss": self.logged_loss.state_dict(),
                "epoch_means": self.epoch_means.state_dict(),
                **({"origin": dict(self.origin)} if self.origin else {}),
            },
            **learned,
            **({"history": self.record.history.stream} if self.record.cursor.epoch else {}),
            **({"best_model": self.best_model} if self.best_model is not None else {}),
            **({"constants": constants} if (constants := self._constants()) else {}),
        }

    def load_state_dict(self, state: StateDict) -> None:
        state = {"scheduler": [], "constants": {}, **state}
        if missing := {"state", "model", "optimizer"} - state.keys():
            raise IncompatibleState(f"the state lacks {', '.join(sorted(missing))}")
        plain, constants = state["state"], state["constants"]
        learner = self.learner
        if constants != self._constants():  # what was measured then holds, not what is measured now
            learner = Learner(self.config, self.inputs, self.device, constants)
        learner.check(state)
        learning_rate = float(state["optimizer"][0]["param_groups"][0]["lr"])
        history = History.from_part(state["history"]) if "history" in state else History()
        record = Record(self.config, learner.route).from_state(plain, history, learning_rate)
        _check_best_model(record, state)
        logged_loss, epoch_means = Averages(["loss"], self.device), learner.new_averages()
        try:
            logged_loss.load_state_dict(plain["logged_loss"])
            epoch_means.load_state_dict(plain["epoch_means"])
        except (KeyError, TypeError, ValueError) as error:
            raise IncompatibleState(f"the running means cannot be read: {error!r}") from error
        learner.load_state_dict(state)
        self.learner, self.record, self._order, self._validation = learner, record, None, None
        self.logged_loss, self.epoch_means = logged_loss, epoch_means
        self.best_model = _copy(state["best_model"]) if "best_model" in state else None
        self.origin = plain.get("origin") or {}

    def objects(self) -> Mapping[str, Any]:
        return self.learner.objects()

    def result(self) -> Mapping[str, Any]:
        best = self.record.best
        return {
            "recipe": self.config.recipe,
            "final": self.record.history.newest(1)[0],
            "best": {
                "metric": self.config.monitor,
                "mode": self.config.mode,
                "value": best.metric,
                "epoch": best.epochs,
            },
            "epochs": self.record.cursor.epoch,
            "steps": self.step,
            "samples_seen": self.record.cursor.samples_seen,
            "stopped_early": self.record.is_stopped_early,
            "parameters": sum(each.numel() for each in self.learner.model.parameters()),
            "artifacts": [
                f"{name}.pt"
                for name, part in self.state_dict().items()
                if name != "state" and not isinstance(part, Stream)
            ],
            "details": dict(self.learner.ingredients.description),
        }

    def _epoch_order(self) -> Tensor:
        epoch = self.record.cursor.epoch
        if self._order is None or self._order[0] != epoch:
            num_examples = self.learner.route.num_examples
            self._order = epoch, order(self.config.seed, epoch, num_examples)
        return self._order[1]

    def _log(self) -> dict[str, float]:
        """Return the loss since the last logged point, and start a new mean."""
        self._check_finite()
        metrics = self.learner.in_units(self.logged_loss.means(), "train")
        self.logged_loss.reset()
        return metrics

    def _finish_epoch(self, validated: dict[str, float]) -> dict[str, float]:
        """Keep the best model, write the epoch's line; return the points to record."""
        trained = self.learner.in_units(self.epoch_means.means(), "train")
        self.epoch_means.reset()
        self.learner.epoch_done((trained | validated)[self.config.monitor])
        rate = {"learning_rate": self.learner.learning_rate}
        if self.record.epoch_done(trained | validated | rate):
            self.best_model = _copy(self.learner.model.state_dict())
        del trained["train_loss"]  # the curve has the loss since the last point instead
        return trained | validated | rate | {"epoch": float(self.record.cursor.epoch)}

    def _check_finite(self) -> None:
        """Raise NonFiniteLoss if any loss since the last logged point was not finite."""
        if self.device.type == "cpu" or not self.logged_loss.count:
            return  # on the CPU every loss was looked at before the weights moved
        mean = self.logged_loss.means()["loss"]
        if not math.isfinite(mean):
            raise NonFiniteLoss(self.step, mean)

    def _constants(self) -> dict[str, Any]:
        return dict(self.learner.ingredients.constants)


def _copy(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Return the weights as they are now, on the CPU: an alias would follow the training."""
    return {
        name: each.detach().to("cpu", copy=True) if isinstance(each, Tensor) else each
        for name, each in weights.items()
    }


def _check_best_model(record: Record, state: StateDict) -> None:
    if ("best_model" in state) != (record.best.metric is not None):
        raise IncompatibleState(
            "the best model is there without its metric, or the other way round"
        )
    if "best_model" in state:
        require_same_shape(state["model"], state["best_model"], "best_model")
