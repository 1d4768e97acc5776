"""Callbacks as people write them for a Trainer; nothing in them knows trainops."""

import collections
import random
from types import SimpleNamespace

import numpy as np
from transformers import EarlyStoppingCallback, TrainerCallback
from transformers.trainer_callback import ExportableState

EVENTS = (
    "on_train_begin", "on_train_end", "on_epoch_begin", "on_epoch_end", "on_step_begin",
    "on_pre_optimizer_step", "on_optimizer_step", "on_substep_end", "on_step_end", "on_evaluate",
    "on_log", "on_prediction_step",
)  # fmt: skip
TIMES = ("runtime", "per_second", "flos")  # measured by Trainer.train only


def plain(given):
    """Return what is logged without times, which differ each time."""
    return {n: each for n, each in (given or {}).items() if not any(t in n for t in TIMES)}


class Recorder(TrainerCallback):
    """Writes down each event, with all that it is given."""

    def __init__(self):
        self.events = []

    def note(self, event, args, state, control, *, logs=None, metrics=None, **given):
        rates = [each["lr"] for each in given["optimizer"].param_groups]
        flags = control.state()["args"]
        flags.pop("should_save")
        weight = next(given["model"].parameters()).sum().item()
        size = len(given["train_dataloader"])
        self.events.append([
            event, state.global_step, state.epoch, state.max_steps, state.best_metric, flags,
            plain(logs), plain(metrics), rates, given["lr_scheduler"].get_last_lr(), weight, size,
            [plain(each) for each in state.log_history[-1:]],
        ])  # fmt: skip


for name in EVENTS:
    setattr(Recorder, name, lambda self, *given, _name=name, **options: self.note(
        _name, *given, **options))  # fmt: skip


class Meddler(TrainerCallback):
    """Changes the training from its own state: a number, an array, a generator, a tensor."""

    def __init__(self):
        self.random = random.Random(3)
        self.norms, self.steps, self.last = np.zeros(3), 0, None

    def on_train_begin(self, args, state, control, **given):
        self.queue = collections.deque()  # is not changed
        self.last = next(given["model"].parameters()).detach().clone()

    def on_pre_optimizer_step(self, args, state, control, model, **given):
        self.steps += 1
        self.norms[self.steps % 3] = model.transformer.wte.weight.grad.norm().item()
        for each in model.parameters():
            each.grad *= 1 + self.random.random() * self.norms.mean()

    def on_step_end(self, args, state, control, model, **given):
        first = next(model.parameters())
        first.data += 0.1 * (first.data - self.last)
        self.last = first.detach().clone()
        control.should_evaluate |= self.random.random() < 0.3
        control.should_epoch_stop |= self.steps % 4 == 0
        return control

    def on_epoch_end(self, args, state, control, **given):
        control.should_evaluate |= self.steps % 3 == 0


class Exporting(TrainerCallback, ExportableState):
    """Exports a number that is in an object of its own."""

    def __init__(self):
        self.inner = SimpleNamespace(count=0)

    @property
    def count(self):
        return self.inner.count

    @count.setter
    def count(self, value):
        self.inner.count = value

    def state(self):
        return {"args": {}, "attributes": {"count": self.count}}

    def on_step_end(self, args, state, control, model, **given):
        self.count += 1
        next(model.parameters()).data *= 1 + 0.01 * self.count


class Stopper(TrainerCallback):
    def on_step_end(self, args, state, control, **given):
        control.should_training_stop |= state.global_step == 4


class OtherRankStopper(TrainerCallback):
    """Stops in all ranks but the first."""

    def on_step_end(self, args, state, control, **given):
        control.should_training_stop |= state.global_step == 3 and not state.is_world_process_zero


class Collecting(TrainerCallback):
    """Collects objects that cannot be saved."""

    def __init__(self):
        self.found = []

    def on_step_end(self, args, state, control, **given):
        self.found.append(object())


class StopsWithinWindow(TrainerCallback):
    def on_substep_end(self, args, state, control, **given):
        control.should_training_stop = True


MADE = {
    "recorder": Recorder, "meddler": Meddler, "stopper": Stopper, "collecting": Collecting,
    "exporting": Exporting, "other-rank": OtherRankStopper, "within": StopsWithinWindow,
    "early": lambda: EarlyStoppingCallback(2, 0.01),
}  # fmt: skip
