"""Our training checkpoint as a training file of format version 1."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from trainops.kinds.training.config import TrainingConfig
from trainops.kinds.training.files.file import CONFIG, OUR_PHASE, ResumeState, TrainingFile
from trainops.kinds.training.files.loaders import IteratorState, LoaderManagerState, LoaderState
from trainops.kinds.training.files.streams import NumpyState, RngStates
from trainops.kinds.training.history import History
from trainops.kinds.training.progress import Cursor
from trainops.runtime.job import StateDict

PHASE = "TRAIN_START_EPOCH", OUR_PHASE  # at an epoch's first batch, and within it


def export_training(
    state: StateDict, config: TrainingConfig, *, name: str, saved_at: float
) -> TrainingFile:
    """Return the file for a checkpoint's parts. `name` is the operation's, `saved_at` Unix time.

    What the format has no place for stays behind: the best model, the running means, constants.
    """
    plain = state["state"]
    cursor = Cursor(**plain["cursor"])
    num_batches = batches_trained(cursor, config)
    history = History.from_part(state["history"]) if "history" in state else History()
    last = history.newest(1)[0] if len(history) else {}
    return TrainingFile(
        save_timestamp=saved_at,
        epoch=cursor.epoch,
        global_step=num_batches,
        model=state["model"],
        optimizers=tuple(state["optimizer"]),
        schedulers=tuple(state.get("scheduler", ())),
        rng_states=_rng_states(state["random"]),
        resume_state=ResumeState(
            phase=PHASE[cursor.next_batch > 0],
            epoch=cursor.epoch,
            global_step=num_batches,
            timestamp=saved_at,
            loaders=_loaders(cursor, config),
        ),
        metrics={key: value for key, value in last.items() if key != "epoch"},
        metrics_history=_columns(history),
        config_snapshot=config.model_dump(mode="json"),
        experiment_name=name,
        config=_saving(config),
    )


def batches_trained(cursor: Cursor, config: TrainingConfig) -> int:
    """Return how many batches there have been; the other tool counts those, not steps."""
    if not cursor.epoch:
        return cursor.next_batch
    num_examples = _examples(cursor, config.batch_size)
    return cursor.epoch * -(-num_examples // config.batch_size) + cursor.next_batch


def _examples(cursor: Cursor, batch_size: int) -> int:
    """Return how many examples an epoch has; before a validation all of this one are trained."""
    num_examples, rest = divmod(cursor.samples_seen, cursor.epoch + 1)
    if not rest and -(-num_examples // batch_size) == cursor.next_batch:
        return num_examples
    return (cursor.samples_seen - cursor.next_batch * batch_size) // cursor.epoch


def _loaders(cursor: Cursor, config: TrainingConfig) -> LoaderManagerState:
    """Return one loader, which stands where the cursor does."""
    batch = cursor.next_batch
    loader = LoaderState(number=0, name=config.recipe, batch_idx=batch)
    return LoaderManagerState(
        seed=config.seed,
        choice_rng=_numpy_state(np.random.RandomState(config.seed % 2**32).get_state(legacy=False)),
        train=IteratorState(batch, (loader,), batch, (0,), batch),
    )


def _rng_states(random: Mapping[str, Any]) -> RngStates:
    numpy = random["numpy"]
    key = numpy["state"]["key"].numpy()
    return RngStates(
        python=random["python"],
        numpy=_numpy_state({**numpy, "state": {**numpy["state"], "key": key}}),
        torch_cpu=random["torch"],
        torch_cuda=tuple(random["cuda"]) or None,
    )


def _numpy_state(state: Mapping[str, Any]) -> NumpyState:
    """Return the legacy tuple of what get_state(legacy=False) returns."""
    key, position = state["state"]["key"], state["state"]["pos"]
    return (
        state["bit_generator"], key.astype(np.uint32), int(position),
        int(state["has_gauss"]), float(state["gauss"]),
    )  # fmt: skip


def _columns(history: History) -> dict[str, list[float]]:
    """Return a list for each metric, with a value for each epoch."""
    names = history.stream.columns if history.stream is not None else {}
    return {name: history.values(name) for name in names}


def _saving(config: TrainingConfig) -> dict[str, Any]:
    checkpoint = config.checkpoint
    return CONFIG | {
        "save_every_n_steps": checkpoint.every_steps,
        "save_every_n_epochs": checkpoint.every_epochs,
        "save_every_n_minutes": checkpoint.every_seconds / 60,
        "max_checkpoints": checkpoint.keep_last,
        "monitor_metric": config.monitor,
        "monitor_mode": config.mode,
        "save_best": checkpoint.keep_best > 0,
    }
