"""Where a training run stands and what it has seen: the part of its state that people read."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from trainops.engines import lossless
from trainops.engines.errors import IncompatibleState
from trainops.engines.training.config import TrainingConfig
from trainops.engines.training.data import Route

SHOWN = ("train_loss", "val_loss", "train_accuracy", "val_accuracy")


@dataclass(slots=True)
class Cursor:
    """The place in the data. Epochs and batches count from 0; the batch is the next one."""

    epoch: int = 0
    next_batch: int = 0
    optimizer_steps: int = 0
    samples_seen: int = 0


@dataclass(frozen=True, slots=True)
class Best:
    """The best finished epoch by the monitored metric; nothing where none was finite."""

    metric: float | None = None
    epochs: int | None = None  # finished when it was reached
    epochs_since: int = 0


@dataclass(slots=True)
class Record:
    """The cursor, and a line for each finished epoch; everything else follows from the two."""

    config: TrainingConfig
    route: Route
    cursor: Cursor = field(default_factory=Cursor)
    history: list[dict[str, Any]] = field(default_factory=list)

    def step_done(self, num_batches: int, num_samples: int) -> bool:
        """Move the cursor past a step; return whether that ended the epoch."""
        cursor = self.cursor
        cursor.optimizer_steps += 1
        cursor.next_batch += num_batches
        cursor.samples_seen += num_samples
        return cursor.next_batch == self.route.batches_per_epoch

    def epoch_done(self, metrics: Mapping[str, float]) -> bool:
        """Write the epoch's line and go to the next; return whether it was the best so far."""
        self.cursor.epoch += 1
        self.cursor.next_batch = 0
        self.history.append({"epoch": self.cursor.epoch, **metrics})
        return self.best.epochs == self.cursor.epoch

    @property
    def best(self) -> Best:
        """Return the first of the best epochs, so that a tie changes nothing."""
        best, sign = Best(), 1 if self.config.mode == "min" else -1
        for line in self.history:
            value = line[self.config.monitor]
            if value == value and (best.metric is None or sign * value < sign * best.metric):
                best = Best(value, line["epoch"])
        return Best(best.metric, best.epochs, len(self.history) - (best.epochs or 0))

    @property
    def is_stopped_early(self) -> bool:
        patience = self.config.early_stopping_patience
        return patience is not None and self.best.epochs_since >= patience

    @property
    def total_steps(self) -> int:
        if self.is_stopped_early:
            return self.cursor.optimizer_steps
        return self.config.epochs * self.route.steps_per_epoch

    @property
    def place(self) -> str:
        return f"epoch {min(self.cursor.epoch + 1, self.config.epochs)} of {self.config.epochs}"

    def to_state(self, learning_rate: float) -> dict[str, Any]:
        """Return the JSON state. "metric" is there only where it was measured on these weights."""
        last = self.history[-1] if self.history else {}
        best, cursor = self.best, self.cursor
        losses = [line["val_loss"] for line in self.history if "val_loss" in line]
        finite = [loss for loss in losses if loss == loss]
        return {
            "recipe": self.config.recipe,
            "epoch": cursor.epoch,
            "global_step": cursor.optimizer_steps,
            **{name: last.get(name) for name in SHOWN},
            "learning_rate": learning_rate,
            "best_val_loss": min(finite, default=None),
            "best_metric": best.metric,
            "best_epoch": best.epochs,
            "epochs_without_improvement": best.epochs_since,
            "metric": last.get(self.config.monitor) if cursor.next_batch == 0 else None,
            "training_history": [dict(line) for line in self.history],
            "cursor": asdict(cursor),
        }

    def from_state(self, state: Mapping[str, Any], learning_rate: float) -> "Record":
        """Return the record that the state describes. Raises IncompatibleState.

        Whatever follows from something else in the state must agree with it.
        """
        try:
            record = Record(
                self.config,
                self.route,
                Cursor(**state["cursor"]),
                [dict(line) for line in state["training_history"]],
            )
            expected = record.to_state(learning_rate)
        except (KeyError, TypeError, ValueError) as error:
            raise IncompatibleState(f"the state cannot be read: {error!r}") from error
        for name, value in expected.items():
            if name not in state or lossless.dumps(value) != lossless.dumps(state[name]):
                raise IncompatibleState(
                    f"{name} is {state.get(name)!r}, but by the rest of the state {value!r}"
                )
        record.check_cursor()
        return record

    def check_cursor(self) -> None:
        """Raise IncompatibleState if the four numbers are not of one place in this data."""
        cursor, route = self.cursor, self.route
        steps = -(-cursor.next_batch // route.batches_per_step)
        samples = min(cursor.next_batch * route.batch_size, route.num_examples)
        agree = (
            cursor.optimizer_steps == cursor.epoch * route.steps_per_epoch + steps
            and cursor.samples_seen == cursor.epoch * route.num_examples + samples
            and cursor.next_batch % route.batches_per_step == 0
            and 0 <= cursor.next_batch < route.batches_per_epoch
            and len(self.history) == cursor.epoch
        )
        if not agree:
            raise IncompatibleState(f"{cursor} is no place between two steps of {route}")
