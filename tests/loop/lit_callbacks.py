"""Callbacks as people write them for Lightning; nothing in them knows trainops."""

import random

from lightning.pytorch import Callback
from lightning.pytorch.callbacks import (
    EarlyStopping,
    LearningRateMonitor,
    ModelCheckpoint,
    ModelSummary,
    TQDMProgressBar,
)

EVENTS = (
    "setup", "on_fit_start", "on_train_start", "on_train_epoch_start", "on_train_batch_start",
    "on_before_zero_grad", "on_before_backward", "on_after_backward", "on_before_optimizer_step",
    "on_train_batch_end", "on_validation_start", "on_validation_epoch_start",
    "on_validation_batch_start", "on_validation_batch_end", "on_validation_epoch_end",
    "on_validation_end", "on_train_epoch_end", "on_train_end", "on_fit_end",
)  # fmt: skip
WITH_METRICS = ("on_validation_epoch_end", "on_validation_end", "on_train_epoch_end")


class Recorder(Callback):
    """Writes down each event, with the place and the weights at it."""

    def __init__(self):
        self.events = []

    def note(self, event, trainer, module, *given):
        numbers = [each for each in given if isinstance(each, int | str)]
        metrics = {}
        if event in WITH_METRICS:
            found = trainer.callback_metrics
            metrics = {n: float(v) for n, v in sorted(found.items()) if not n.startswith("lr-")}
        weight = sum(each.sum().item() for each in module.parameters())
        place = [trainer.current_epoch, trainer.global_step, trainer.should_stop, module.training]
        self.events.append([event, place, numbers, weight, metrics])


for name in EVENTS:
    setattr(Recorder, name, lambda self, *given, _name=name, **_options: self.note(_name, *given))


class Meddler(Callback):
    """Changes the training from its own state, a generator among it, and logs."""

    def __init__(self):
        self.random, self.steps, self.last = random.Random(3), 0, None

    def on_before_optimizer_step(self, trainer, module, optimizer):
        self.steps += 1
        first = next(module.parameters()).detach()
        if self.last is not None:
            first += 0.05 * self.random.random() * (first - self.last)
        self.last = first.clone()

    def on_train_epoch_end(self, trainer, module):
        module.log("steps_of_callback", float(self.steps))


class Stateful(Callback):
    """Has a state of its own, and stops by it."""

    def __init__(self):
        self.objects, self.count = [], 0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.objects.append(object())
        self.count += 1
        if self.count >= 9:
            trainer.should_stop = True

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


MADE = {
    "recorder": Recorder, "meddler": Meddler, "stateful": Stateful,
    "early": lambda: EarlyStopping("val_loss", min_delta=0.2, patience=2),
    "early-validation": lambda: EarlyStopping(
        "val_worst", min_delta=0.2, patience=2, check_on_train_epoch_end=False
    ),
    "early-training": lambda: EarlyStopping("train_root", min_delta=0.2, patience=1),
    "early-far": lambda: EarlyStopping("val_error_1", min_delta=0.1, patience=1),
    "summary": ModelSummary, "bar": TQDMProgressBar,
    "best": lambda: ModelCheckpoint(monitor="val_loss", save_top_k=3),
    "rates": lambda: LearningRateMonitor(),
}  # fmt: skip
