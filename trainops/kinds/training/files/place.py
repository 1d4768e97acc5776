"""Where in the data and the history of a job of ours a training file stands."""

import math
from collections.abc import Mapping
from typing import Any

from trainops.files.fields import is_list, is_number
from trainops.kinds.training.files.file import TrainingFile
from trainops.kinds.training.files.fit import CannotContinue
from trainops.kinds.training.files.loaders import IteratorState
from trainops.kinds.training.history import History
from trainops.kinds.training.job import TrainingJob
from trainops.kinds.training.progress import Cursor, TrainingProgress
from trainops.learning.data import BatchPlan
from trainops.runtime.receipt import ReceiptItem


def fit_position(file: TrainingFile, job: TrainingJob) -> tuple[Cursor, ReceiptItem]:
    """Return the cursor that stands where the file does. Raises CannotContinue.

    A file that was saved at the end of an epoch still names that epoch: the place is the beginning
    of the next one. Only the file at the end of the training names the next one itself, while its
    loaders stand where that last epoch left them.
    """
    route, loaders = job.trainer.route, _loaders_of(file)
    epoch, batch = file.epoch, _batch_of(file, route)
    if batch == route.batches_per_epoch:
        is_counted = file.global_step in (
            epoch * route.steps_per_epoch,
            epoch * route.batches_per_epoch,
        )
        epoch, batch = epoch if is_counted else epoch + 1, 0
    steps = epoch * route.steps_per_epoch + -(-batch // route.batches_per_step)
    batches = epoch * route.batches_per_epoch + batch
    if not 0 <= batch < route.batches_per_epoch:
        raise CannotContinue(
            f"batch {batch} of epoch {epoch} is none here: an epoch has {route.batches_per_epoch}"
        )
    if batch % route.batches_per_step:
        raise CannotContinue(
            f"batch {batch} lies within a step of {route.batches_per_step} batches"
        )
    if file.global_step not in (steps, batches):
        raise CannotContinue(
            f"epoch {epoch}, batch {batch} is step {steps} here, not {file.global_step}"
        )
    if steps > job.total_steps:
        raise CannotContinue(f"step {steps} lies beyond the {job.total_steps} of this config")
    samples = epoch * route.num_examples + min(batch * route.batch_size, route.num_examples)
    several = f", of {len(loaders.loaders)} loaders" if loaders and len(loaders.loaders) > 1 else ""
    note = f"epoch {epoch}, batch {batch}{several}; the examples come in this product's own order"
    return Cursor(epoch, batch, steps, samples), ReceiptItem("data position", True, False, note)


def fit_history(
    file: TrainingFile, job: TrainingJob, cursor: Cursor
) -> tuple[History, list[str], list[ReceiptItem]]:
    """Return a line for each finished epoch, and by which monitored metrics the weights are best.

    The file holds no other model than its last. So where an earlier epoch was the best by a
    monitored metric, that starts anew. Raises CannotContinue where early stopping would count from
    there.
    """
    if not cursor.epoch:
        return History(), [], []
    monitor, patience = job.config.monitor, job.config.early_stopping_patience
    columns = _columns(file.metrics_history, cursor.epoch)
    history = _history(columns, cursor.epoch, monitor)
    progress = TrainingProgress(job.config, job.trainer.route, cursor, history)
    epochs = {name: best.epochs for name, best in progress.bests.items()}
    at_end = cursor.next_batch == 0
    is_best = [name for name, epoch in epochs.items() if epoch == cursor.epoch and at_end]
    if anew := [name for name in epochs if name not in is_best]:
        history = _history(columns | {name: [] for name in anew}, cursor.epoch, monitor)
    if monitor in anew and patience is not None and cursor.epoch >= patience:
        raise CannotContinue("early stopping counts from the best epoch, whose model is not here")
    note = "" if columns else "the file has none of these epochs"
    if lost := [name for name in anew if epochs[name]]:
        lines = [f"without {n}: the best model, of epoch {epochs[n]}" for n in lost]
        note = f"{', '.join(lines)}, is not in the file"
    return history, is_best, [ReceiptItem("history", bool(columns), not anew, note)]


def _history(columns: Mapping[str, list[Any]], num_epochs: int, monitor: str) -> History:
    """Return a line for each epoch; what is no number is NaN, as is the monitor without values."""
    history = History()
    for epoch in range(num_epochs):
        values = {name: each[epoch] for name, each in columns.items() if each}
        numbers = {name: float(v) for name, v in values.items() if is_number(v)}
        history.append({monitor: math.nan} | numbers)
    return history


def _loaders_of(file: TrainingFile) -> IteratorState | None:
    return file.loaders.train if file.loaders else None


def _batch_of(file: TrainingFile, route: BatchPlan) -> int:
    """Return the next batch in the file's epoch; without loaders' states by its steps."""
    if loaders := _loaders_of(file):
        return loaders.total_batches
    batches = file.global_step - file.epoch * route.batches_per_epoch
    if 0 <= batches <= route.batches_per_epoch:
        return batches
    steps = file.global_step - file.epoch * route.steps_per_epoch
    return min(steps * route.batches_per_step, route.batches_per_epoch)


def _columns(history: Any, num_epochs: int) -> dict[str, list[Any]]:
    """Return the values of each metric by epoch, from a dict of lists or a list of dicts."""
    if is_list(history) and all(isinstance(line, Mapping) for line in history):
        names = dict.fromkeys(name for line in history for name in line)
        history = {name: [line.get(name) for line in history] for name in names}
    if not isinstance(history, Mapping):
        return {}
    return {
        str(name): list(values)
        for name, values in history.items()
        if name != "epoch" and is_list(values) and len(values) == num_epochs
    }
