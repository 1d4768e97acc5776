"""Where a training run stands and what it has seen: the part of its state that people read."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from trainops.kinds.training.config import TrainingConfig
from trainops.kinds.training.history import History
from trainops.learning.data import BatchPlan
from trainops.runtime import lossless, monitors
from trainops.runtime.errors import IncompatibleState
from trainops.runtime.position import completed

SHOWN = ("train_loss", "val_loss", "train_accuracy", "val_accuracy")
NEWEST_EPOCHS = 100  # whose lines are in the JSON state; all of them are in the history


@dataclass(slots=True)
class Cursor:
    """The place in the data. Epochs and batches count from 0; the batch is the next one."""

    epoch: int = 0
    next_batch: int = 0
    optimizer_steps: int = 0
    samples_seen: int = 0


@dataclass(frozen=True, slots=True)
class BestEpoch:
    """The best finished epoch by a monitored metric; nothing where none was finite."""

    metric: float | None = None
    epochs: int | None = None  # finished when it was reached

    def and_then(self, value: float, epoch: int, mode: str) -> "BestEpoch":
        """Return the better one; of equals the first, so that a tie changes nothing."""
        sign = 1 if mode == "min" else -1
        is_better = self.metric is None or sign * value < sign * self.metric
        return BestEpoch(value, epoch) if math.isfinite(value) and is_better else self


@dataclass(slots=True)
class TrainingProgress:
    """The cursor, and a line for each finished epoch; everything else follows from the two."""

    config: TrainingConfig
    route: BatchPlan
    cursor: Cursor = field(default_factory=Cursor)
    history: History = field(default_factory=History)
    best: BestEpoch = field(default_factory=BestEpoch, init=False)
    further: dict[str, BestEpoch] = field(init=False)  # by each further monitored metric
    best_val_loss: float | None = field(default=None, init=False)
    _planned_steps: int = field(init=False)  # of all epochs
    _max_steps: float = field(init=False)  # by limits.max_duration

    def __post_init__(self) -> None:
        self._planned_steps = self.config.epochs * self.route.steps_per_epoch
        self._max_steps = self._limited_steps()
        self.further = dict.fromkeys(self.config.monitors, BestEpoch())
        for name in (self.config.monitor, *self.further):
            for epoch, value in enumerate(self.history.values(name), 1):
                self._judge(name, epoch, value)
        for loss in self.history.values("val_loss"):
            self._judge_loss(loss)

    @property
    def is_epoch_trained(self) -> bool:
        """Whether every batch of the epoch was trained, and its line is not written yet."""
        return self.cursor.next_batch == self.route.batches_per_epoch

    def step_done(self, num_batches: int, num_samples: int) -> None:
        """Move the cursor past a step."""
        cursor = self.cursor
        cursor.optimizer_steps += 1
        cursor.next_batch += num_batches
        cursor.samples_seen += num_samples

    def epoch_done(self, metrics: Mapping[str, float]) -> list[str]:
        """Write the epoch's line and go to the next; return by which metrics it is the best."""
        self.cursor.epoch += 1
        self.cursor.next_batch = 0
        self.history.append(metrics)
        for name in (self.config.monitor, *self.further):
            self._judge(name, self.cursor.epoch, metrics[name])
        self._judge_loss(metrics.get("val_loss", math.nan))
        return [name for name, best in self.bests.items() if best.epochs == self.cursor.epoch]

    def _judge(self, name: str, epoch: int, value: float) -> None:
        if name == self.config.monitor:
            self.best = self.best.and_then(value, epoch, self.config.mode)
        else:
            self.further[name] = self.further[name].and_then(
                value, epoch, self.config.monitors[name]
            )

    def _judge_loss(self, loss: float) -> None:
        best = self.best_val_loss
        if math.isfinite(loss) and (best is None or loss < best):
            self.best_val_loss = loss

    @property
    def bests(self) -> dict[str, BestEpoch]:
        """The best epochs by all monitored metrics, `monitor` first."""
        return {self.config.monitor: self.best, **self.further}

    @property
    def epochs_without_improvement(self) -> int:
        return len(self.history) - (self.best.epochs or 0)

    @property
    def is_stopped_early(self) -> bool:
        patience = self.config.early_stopping_patience
        return patience is not None and self.epochs_without_improvement >= patience

    @property
    def total_steps(self) -> int:
        if self.is_stopped_early:
            return self.cursor.optimizer_steps
        return int(min(self._planned_steps, self._max_steps))

    @property
    def stopped_by(self) -> str:
        """What ended the training before its last epoch, for people; "" if nothing did."""
        cursor, limit = self.cursor, self.config.limits.max_progress
        is_limited = self._max_steps <= cursor.optimizer_steps < self._planned_steps
        if limit is None or not is_limited or self.is_stopped_early:
            return ""
        if limit.unit == "ep":
            return f"max_duration at {cursor.epoch} epochs"
        return f"max_duration at {self._num_batches} batches"

    @property
    def _num_batches(self) -> int:
        return self.cursor.epoch * self.route.batches_per_epoch + self.cursor.next_batch

    def _limited_steps(self) -> float:
        """Return the steps after which max_duration is reached: a step ends with a whole batch."""
        limit, route = self.config.limits.max_progress, self.route
        if limit is None:
            return math.inf
        if limit.unit == "ep":
            return limit.number * route.steps_per_epoch
        epochs, batches = divmod(limit.number, route.batches_per_epoch)
        return epochs * route.steps_per_epoch + -(-batches // route.batches_per_step)

    @property
    def place(self) -> str:
        return completed("epoch", self.cursor.epoch, self.config.epochs)

    @property
    def epoch_at_work(self) -> str:
        """Return the epoch whose batches are being trained: one more than those completed."""
        return f"epoch {min(self.cursor.epoch + 1, self.config.epochs)} of {self.config.epochs}"

    def to_state(self, learning_rate: float) -> dict[str, Any]:
        """Return the JSON state. "metric" is there only where it was measured on these weights."""
        lines = self.history.newest(NEWEST_EPOCHS)
        last = lines[-1] if lines else {}
        best, cursor = self.best, self.cursor
        return {
            "recipe": self.config.recipe,
            "epoch": cursor.epoch,
            "global_step": cursor.optimizer_steps,
            **{name: last.get(name) for name in SHOWN},
            "learning_rate": learning_rate,
            "best_val_loss": self.best_val_loss,
            "best_metric": best.metric,
            "best_epoch": best.epochs,
            "epochs_without_improvement": self.epochs_without_improvement,
            "metric": last.get(self.config.monitor) if cursor.next_batch == 0 else None,
            **self._further_state(last),
            "training_history": lines,
            "cursor": asdict(cursor),
        }

    def _further_state(self, last: Mapping[str, Any]) -> dict[str, Any]:
        if not self.further:
            return {}
        lines = {
            name: {
                "metric": _finite(last.get(name)) if self.cursor.next_batch == 0 else None,
                "best_metric": best.metric,
                "best_epoch": best.epochs,
            }
            for name, best in self.further.items()
        }
        return {monitors.STATE_KEY: lines}

    def from_state(
        self, state: Mapping[str, Any], history: History, learning_rate: float
    ) -> "TrainingProgress":
        """Return the record that the state describes. Raises IncompatibleState.

        Whatever follows from something else in the state must agree with it.
        """
        try:
            progress = TrainingProgress(self.config, self.route, Cursor(**state["cursor"]), history)
            expected = progress.to_state(learning_rate)
        except (KeyError, TypeError, ValueError) as error:
            raise IncompatibleState(f"the state cannot be read: {error!r}") from error
        for name, value in expected.items():
            if name not in state or lossless.dumps(value) != lossless.dumps(state[name]):
                raise IncompatibleState(
                    f"{name} is {state.get(name)!r}, but by the rest of the state {value!r}"
                )
        progress.check_cursor()
        return progress

    def check_cursor(self) -> None:
        """Raise IncompatibleState if the four numbers are not of one place in this data."""
        cursor, route = self.cursor, self.route
        steps = -(-cursor.next_batch // route.batches_per_step)
        samples = min(cursor.next_batch * route.batch_size, route.num_examples)
        agree = (
            cursor.optimizer_steps == cursor.epoch * route.steps_per_epoch + steps
            and cursor.samples_seen == cursor.epoch * route.num_examples + samples
            and (cursor.next_batch % route.batches_per_step == 0 or self.is_epoch_trained)
            and 0 <= cursor.next_batch <= route.batches_per_epoch
            and len(self.history.values(self.config.monitor)) == cursor.epoch
        )
        if not agree:
            raise IncompatibleState(f"{cursor} is no place between two steps of {route}")


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
