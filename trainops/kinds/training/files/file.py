"""The file of a training run, format version 1: what it holds, read and written."""

import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from trainops.files.errors import UnsupportedVersion
from trainops.files.fields import Fields, shown
from trainops.files.optimizers import learning_rates, read_optimizer, read_scheduler, steps_taken
from trainops.kinds.training.files.loaders import (
    LoaderManagerState,
    read_loader_manager,
    write_loader_manager,
)
from trainops.kinds.training.files.streams import RngStates, read_rng_states, write_rng_states

log = logging.getLogger(__name__)

VERSION = 1
OUR_PHASE = "TRAIN_BATCH_LOAD"  # of what we export within an epoch, also after its last batch
LEGACY = {
    "optimizer_state_dicts": "optimizer_state_dict",
    "scheduler_state_dicts": "scheduler_state_dict",
}
COMPARED = (
    "compared: steps of each optimizer and positions of schedules with global_step and epoch, "
    "rates with their base and their schedule, moments with the weights; not compared: the shapes "
    "of a model and the data, which only a job knows"
)
CONFIG = {
    "root_dir": ".",
    "save_every_n_steps": None,
    "save_every_n_epochs": 1,
    "save_every_n_minutes": None,
    "max_checkpoints": 5,
    "save_rng": True,
    "save_optimizer": True,
    "save_scheduler": True,
    "filename_template": "epoch_{epoch:03d}_step_{step:06d}.ckpt",
    "monitor_metric": None,
    "monitor_mode": "min",
    "save_best": True,
}  # how the other tool saves; its reader expects all of them


@dataclass(frozen=True, slots=True)
class ResumeState:
    """Where the other tool's loop stood. Its own copies of random streams are never read."""

    phase: str
    epoch: int = 0
    global_step: int = 0  # stale in real files: the file's own counts
    version: int = 1
    timestamp: float = 0.0
    multi_train: Mapping[str, Any] | None = None
    multi_val: Mapping[str, Any] | None = None
    loaders: LoaderManagerState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFile:
    """One checkpoint of a training run.

    Epochs count from 0. `optimizers` and `schedulers` are torch's state dicts; `was_legacy` names
    the older fields that the file had instead of lists. `top_loaders` is the state of the loaders
    at the top level, where the file has it there. `is_weights_only` is a model without a training.
    """

    save_timestamp: float
    epoch: int
    global_step: int
    model: Mapping[str, Tensor]
    optimizers: tuple[Mapping[str, Any], ...] = ()
    schedulers: tuple[Mapping[str, Any], ...] = ()
    amp_scaler: Mapping[str, Any] | None = None
    rng_states: RngStates | None = None
    resume_state: ResumeState | None = None
    top_loaders: LoaderManagerState | None = None
    metrics: Mapping[str, float] | None = None
    metrics_history: Any = None
    config_snapshot: Any = None
    experiment_name: str | None = None
    config: Mapping[str, Any] = field(default_factory=lambda: dict(CONFIG))
    was_legacy: tuple[str, ...] = ()
    is_weights_only: bool = False

    @property
    def loaders(self) -> LoaderManagerState | None:
        """Return where the loaders stood: by the top level first, as the other tool reads it."""
        if self.top_loaders is not None:
            return self.top_loaders
        return self.resume_state.loaders if self.resume_state else None

    @property
    def name(self) -> str:
        """Return the file's name as the other tool would choose it."""
        return f"epoch_{self.epoch:03d}_step_{self.global_step:06d}.ckpt"


def check_version(tree: Mapping[str, Any]) -> str:
    """Return what to say about the version. Raises UnsupportedVersion."""
    found = tree.get("format_version", VERSION)
    if found != VERSION or type(found) is not int:
        raise UnsupportedVersion(
            f"format_version is {shown(found)}; training files of version {VERSION} are read"
        )
    return f"training, format version {VERSION}"


def parse(tree: Mapping[str, Any]) -> TrainingFile:
    """Return the file's values. Raises InvalidFields."""
    fields = Fields(tree)
    legacy = _legacy_fields(tree)
    file = TrainingFile(
        save_timestamp=fields.number("save_timestamp", at_least=0, default=0.0),
        epoch=fields.integer("epoch"),
        global_step=fields.integer("global_step"),
        model=fields.tensors("model_state_dict"),
        optimizers=tuple(map(read_optimizer, _states(fields, "optimizer_state_dicts", legacy))),
        schedulers=tuple(map(read_scheduler, _states(fields, "scheduler_state_dicts", legacy))),
        amp_scaler=fields.mapping("amp_scaler_state", default=None),
        rng_states=read_rng_states(fields.within("rng_states"))
        if fields.has("rng_states")
        else None,
        resume_state=_read_resume_state(fields),
        top_loaders=_read_loaders(fields),
        metrics=fields.numbers("metrics", default=None),
        metrics_history=fields.plain("metrics_history", default=None),
        config_snapshot=fields.plain("config_snapshot", default=None),
        experiment_name=fields.text("experiment_name", default=None),
        config=fields.mapping("config", default=None) or dict(CONFIG),
        was_legacy=legacy,
    )
    if not file.model and not fields.problems:
        fields.wrong("model_state_dict", "has no tensors; must be the model's")
    fields.finish()
    if legacy:
        log.warning(
            "The file has %s instead of lists; it was read as lists of one. "
            "Save it again in today's layout: other readers will drop the old one.",
            " and ".join(legacy),
        )
    return file


def check_weights(tree: Mapping[str, Any]) -> str:
    """Return what to say of a model without a training."""
    return f"weights only: a state dict of {len(tree)} tensors"


def parse_weights(tree: Mapping[str, Any]) -> TrainingFile:
    """Return a model without a training as a file of one. Raises InvalidFields."""
    fields = Fields({"weights": dict(tree)})
    model = fields.tensors("weights")
    fields.finish()
    return TrainingFile(
        save_timestamp=0.0, epoch=0, global_step=0, model=model, is_weights_only=True
    )


def to_tree(file: TrainingFile) -> dict[str, Any]:
    """Return what is saved, with the keys that the other tool writes."""
    return {
        "format_version": VERSION,
        "is_multi_dataloader_only": True,
        "save_timestamp": file.save_timestamp,
        "epoch": file.epoch,
        "global_step": file.global_step,
        "model_state_dict": OrderedDict(file.model),
        "optimizer_state_dicts": [dict(each) for each in file.optimizers],
        "scheduler_state_dicts": [dict(each) for each in file.schedulers],
        "amp_scaler_state": file.amp_scaler,
        "rng_states": write_rng_states(file.rng_states) if file.rng_states else None,
        "dataloader_manager_state": _loaders_tree(file.top_loaders),
        "choice_rng_state": file.top_loaders.choice_rng if file.top_loaders else None,
        "resume_state": _resume_tree(file.resume_state) if file.resume_state else None,
        "metrics": dict(file.metrics) if file.metrics else None,
        "metrics_history": file.metrics_history,
        "config_snapshot": file.config_snapshot,
        "experiment_name": file.experiment_name,
        "config": dict(file.config),
    }


def disagreements(file: TrainingFile) -> dict[str, str]:
    """Return what does not fit the rest of the file, by place."""
    found = {}
    for number, optimizer in enumerate(file.optimizers):
        place = f"optimizer_state_dicts[{number}]"
        steps = steps_taken(optimizer)
        if len(steps) > 1:
            found[f"{place}.state"] = f"parameters were moved {min(steps)} to {max(steps)} times"
        elif steps and max(steps) > file.global_step:
            found[f"{place}.state"] = (
                f"parameters were moved {max(steps)} times in {file.global_step} steps"
            )
        found.update(learning_rates(optimizer, place))
    for number, scheduler in enumerate(file.schedulers):
        last = scheduler.get("last_epoch") or 0
        if last > file.global_step + file.epoch + 1:  # it moves at each step and epoch's end
            found[f"scheduler_state_dicts[{number}].last_epoch"] = (
                f"is {last} after {file.global_step} steps and {file.epoch + 1} epochs"
            )
    return found


def warnings(file: TrainingFile) -> list[str]:
    """Return what is odd, but may be: an optimizer that was never used, or keeps other shapes."""
    shapes, found = {tuple(each.shape) for each in file.model.values()}, []
    for number, optimizer in enumerate(file.optimizers):
        place = f"optimizer_state_dicts[{number}]"
        if file.global_step and not optimizer["state"] and _keeps_moments(optimizer):
            found.append(f"{place}.state is empty after {file.global_step} steps")
        others = sorted(
            f"{place}.state[{key}].{name} is {tuple(each.shape)}"
            for key, moments in optimizer["state"].items()
            for name, each in moments.items()
            if isinstance(each, Tensor) and each.dim() and tuple(each.shape) not in shapes
        )
        if others:
            found.append(f"{others[0]}: no tensor of the model has this shape")
        rates = [group.get("lr") for group in optimizer["param_groups"]]
        used = file.schedulers[number].get("_last_lr") if number < len(file.schedulers) else None
        if isinstance(used, list) and len(used) == len(rates) and used != rates:
            found.append(f"{place} has the rates {shown(rates)}, its schedule set {shown(used)}")
    return found


def _keeps_moments(optimizer: Mapping[str, Any]) -> bool:
    return any("betas" in group or group.get("momentum") for group in optimizer["param_groups"])


def _states(fields: Fields, name: str, legacy: tuple[str, ...]) -> list[Fields]:
    """Return the state dicts of a list, or the one of an older file, or none."""
    if LEGACY[name] in legacy:
        return [fields.within(LEGACY[name])]
    return fields.each(name) if fields.has(name) else []


def _legacy_fields(tree: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(
        old for new, old in LEGACY.items() if tree.get(new) is None and tree.get(old) is not None
    )


def _read_resume_state(fields: Fields) -> ResumeState | None:
    if not fields.has("resume_state"):
        return None
    state = fields.within("resume_state")
    return ResumeState(
        phase=state.text("phase", default="INIT"),
        epoch=state.integer("epoch", default=0),
        global_step=state.integer("global_step", default=0),
        version=state.integer("version", default=1),
        timestamp=state.number("timestamp", default=0.0),
        multi_train=state.mapping("multi_train", default=None),
        multi_val=state.mapping("multi_val", default=None),
        loaders=_read_loaders(state),
    )


def _read_loaders(fields: Fields) -> LoaderManagerState | None:
    if not fields.mapping("dataloader_manager_state", default=None):
        return None  # an empty one says nothing, to their reader too
    return read_loader_manager(fields.within("dataloader_manager_state"))


def _loaders_tree(state: LoaderManagerState | None) -> dict[str, Any] | None:
    return write_loader_manager(state) if state else None


def _resume_tree(state: ResumeState) -> dict[str, Any]:
    return {
        "phase": state.phase,
        "epoch": state.epoch,
        "global_step": state.global_step,
        "version": state.version,
        "timestamp": state.timestamp,
        "multi_train": state.multi_train,
        "multi_val": state.multi_val,
        "dataloader_manager_state": _loaders_tree(state.loaders),
        "rng": None,  # theirs are pickles in disguise; with None their reader takes rng_states
        "choice_rng": None,
    }
