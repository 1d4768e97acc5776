"""The events of Trainer.train: callbacks of a Trainer are called, and their state is kept."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import (
    DefaultFlowCallback,
    PrinterCallback,
    ProgressCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
)
from transformers.trainer_callback import ExportableState

from trainops.kinds.loop.bests import copied
from trainops.kinds.loop.changed_attributes import ChangedAttributes
from trainops.kinds.loop.replicas import Replicas
from trainops.runtime.errors import IncompatibleState, InputError

log = logging.getLogger(__name__)
DISPLAYS = (PrinterCallback, ProgressCallback)  # are not called
CONTROLS = tuple(TrainerControl().state()["args"])
AGREED = ("should_training_stop", "should_epoch_stop", "should_evaluate", "should_log")
# Fields of TrainerState that a training changes. Others follow from its arguments.
CHANGED = (
    "epoch", "global_step", "num_input_tokens_seen", "log_history", "best_metric",
    "best_global_step",
)  # fmt: skip


def own_callbacks(trainer: Trainer) -> list[TrainerCallback]:
    """Return the callbacks that are called here, but the one that decides when to evaluate."""
    ignored = (DefaultFlowCallback, *DISPLAYS)
    return [each for each in trainer.callback_handler.callbacks if type(each) not in ignored]


class TrainerEvents:
    """Calls callbacks where Trainer.train does; logs and chooses the best weights as it does.

    `best` is kept: the best weights, and at the end of a training those of the last step.
    `is_heard`: there are callbacks, or the best weights are loaded at the end. Otherwise nothing
    is logged, and the flags of `control` follow from arguments and steps.
    """

    def __init__(self, trainer: Trainer, replicas: Replicas, best: dict[str, Any]) -> None:
        self._trainer, self._replicas = trainer, replicas
        handler = trainer.callback_handler
        handler.callbacks = [each for each in handler.callbacks if type(each) not in DISPLAYS]
        self.callbacks = own_callbacks(trainer)
        self.is_heard = bool(self.callbacks) or trainer.args.load_best_model_at_end
        self._best: dict[str, Any] = best
        self._loss = torch.tensor(0.0, device=trainer.args.device)  # since the last log
        self._logged: dict[str, Any] = {"total": 0.0, "at": 0, "norm": None, "rate": 0.0}
        for each in self.callbacks:
            if type(each).on_save is not TrainerCallback.on_save:
                log.warning("%s.on_save is not called: trainops saves", type(each).__name__)

    def begin(self, max_steps: int, num_epochs: int) -> "CallbackStates":
        """Call on_train_begin; return what is to be kept."""
        trainer, state = self._trainer, TrainerState()
        state.train_batch_size = trainer.args.train_batch_size
        state.compute_steps(trainer.args, max_steps)
        state.init_training_references(trainer, max_steps, num_epochs, None)
        state.is_local_process_zero = state.is_world_process_zero = self._replicas.rank == 0
        trainer.state = state
        self.call("on_train_begin")
        return CallbackStates(self)

    def call(self, event: str) -> None:
        """Call the method of this name of all callbacks."""
        trainer = self._trainer
        if self.is_heard or event in ("on_step_end", "on_epoch_end"):
            method = getattr(trainer.callback_handler, event)
            trainer.control = method(trainer.args, trainer.state, trainer.control)

    def end_substep(self) -> None:
        """Call on_substep_end. Raises InputError where a callback stops within a window."""
        self.call("on_substep_end")
        control = self._trainer.control
        if control.should_training_stop or control.should_epoch_stop:
            problem = "a callback stops the training within an accumulation window"
            allowed = "to stop in on_step_end, on_evaluate or on_epoch_end"
            raise InputError({"recipe": f"{problem}; allowed: {allowed}"})

    def agree(self) -> None:
        """Let all ranks do what a callback of one of them asks for."""
        if not self.is_heard or self._replicas.num_ranks == 1:
            return
        control = self._trainer.control
        flags = self._replicas.any([bool(getattr(control, name)) for name in AGREED])
        for name, flag in zip(AGREED, flags, strict=True):
            setattr(control, name, flag)

    def add_loss(self, loss: Tensor) -> None:
        """Take the loss of one batch, as it is logged later."""
        if self.is_heard:
            self._loss += loss.detach()

    def note_step(self, norm: float | Tensor | None, rate: float | Tensor) -> None:
        """Take gradient norm and learning rate of a step, which are logged with the loss."""
        self._logged |= {"norm": norm, "rate": float(rate)}

    def log(self) -> None:
        """Log the mean loss since the last time, if that is due."""
        trainer, logged = self._trainer, self._logged
        step = trainer.state.global_step
        if not (self.is_heard and trainer.control.should_log and step > logged["at"]):
            return
        loss = float(self._replicas.mean(self._loss.item()))
        self._loss -= self._loss
        logs = {"loss": loss / (step - logged["at"])}
        if logged["norm"] is not None:
            logs["grad_norm"] = float(logged["norm"])
        logs["learning_rate"] = logged["rate"]
        logged |= {"total": logged["total"] + loss, "at": step}
        trainer.log(logs)

    def end_evaluation(self, metrics: Mapping[str, float]) -> None:
        """Log the metrics of one dataset, and call on_evaluate."""
        trainer = self._trainer
        if self.is_heard:
            logs = dict(metrics)
            trainer.log(logs)
            trainer.control = trainer.callback_handler.on_evaluate(
                trainer.args, trainer.state, trainer.control, logs
            )

    def monitored(self, metrics: Mapping[str, float]) -> float:
        """Return the value of metric_for_best_model. Raises InputError where there is none."""
        name = str(self._trainer.args.metric_for_best_model)
        measured = name if name.startswith("eval_") else f"eval_{name}"
        if measured not in metrics:
            problem = f"got metric_for_best_model={name!r}"
            raise InputError({"recipe": f"{problem}; allowed: {', '.join(metrics)}"})
        return metrics[measured]

    def compare(self, metrics: Mapping[str, float]) -> None:
        """Remember the best value of metric_for_best_model, of all datasets."""
        trainer = self._trainer
        if not self.is_heard:
            return
        if trainer.args.metric_for_best_model is not None:
            self.monitored(metrics)
        is_best = trainer._determine_best_metric(dict(metrics), trial=None)
        if trainer.args.save_strategy == "best":
            trainer.control.should_save = is_best

    def save(self) -> None:
        """Keep the weights where Trainer.train saves a checkpoint of the best evaluation so far."""
        trainer = self._trainer
        is_best = trainer.state.best_global_step == trainer.state.global_step
        if trainer.control.should_save and trainer.args.load_best_model_at_end and is_best:
            self._best["best"] = copied(self._model.state_dict())
        trainer.control.should_save = False

    def continue_training(self) -> None:
        """Let a longer training continue where the shorter one has ended."""
        self._trainer.control.should_training_stop = False
        if "last" in self._best:
            self._model.load_state_dict(self._best.pop("last"))

    def end(self) -> None:
        """Log the mean loss of the training, load the best weights, and call on_train_end."""
        trainer, logged = self._trainer, self._logged
        if self.is_heard:
            loss = float(self._replicas.mean(self._loss.item()))
            mean = (logged["total"] + loss) / max(trainer.state.global_step, 0.001)
            trainer.log({"train_loss": mean})
            self._load_best()
            self.call("on_train_end")
        trainer.is_in_train = False

    def _load_best(self) -> None:
        if "best" in self._best:
            if "last" not in self._best:
                self._best["last"] = copied(self._model.state_dict())
            self._model.load_state_dict(self._best["best"])

    @property
    def _model(self) -> nn.Module:
        return cast(nn.Module, self._trainer.model)

    def to_state(self) -> dict[str, Any]:
        """Return the plain state of the Trainer: flags, the fields that change, and its logs."""
        norm, state = self._logged["norm"], asdict(self._trainer.state)
        return {
            "control": {name: bool(getattr(self._trainer.control, name)) for name in CONTROLS},
            "state": {name: state[name] for name in CHANGED},
            "logged": {**self._logged, "norm": None if norm is None else float(norm)},
            "loss": self._loss.item(),
        }

    def put_back(self, saved: Mapping[str, Any]) -> None:
        """Load that state."""
        for name in CONTROLS:
            setattr(self._trainer.control, name, saved["control"][name])
        for name in CHANGED:
            setattr(self._trainer.state, name, saved["state"][name])
        self._logged = dict(saved["logged"])
        self._loss = torch.tensor(saved["loss"], device=self._trainer.args.device)


class CallbackStates:
    """State of the callbacks and of the Trainer, as one object that is kept.

    A mapping proxy holds the events, because it is not searched for random generators: only those
    of the callbacks are kept, not those of the Trainer.
    """

    def __init__(self, events: TrainerEvents) -> None:
        self._hidden = MappingProxyType({"events": events})
        handler = events._trainer.callback_handler
        left_out = [handler.model, handler.optimizer, handler.lr_scheduler, events._trainer]
        self._callbacks: Sequence[TrainerCallback] = events.callbacks
        self._attributes = [ChangedAttributes(each, left_out) for each in self._callbacks]

    def state_dict(self) -> dict[str, Any]:
        states = [each.state_dict() for each in self._attributes]
        exported = [exported_by(each) for each in self._callbacks]
        own = {"names": self._names, "attributes": states, "exported": exported}
        return {**own, "trainer": self._found.to_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state["names"] != self._names:
            saved, own = (", ".join(each) or "none" for each in (state["names"], self._names))
            raise IncompatibleState(f"the state has the callbacks {saved}; the Trainer has {own}")
        for attributes, saved in zip(self._attributes, state["attributes"], strict=True):
            attributes.load_state_dict(saved)
        for each, exported in zip(self._callbacks, state["exported"], strict=True):
            for name, value in exported.items():
                setattr(each, name, value)
        self._found.put_back(state["trainer"])

    @property
    def _names(self) -> list[str]:
        return [type(each).__name__ for each in self._callbacks]

    @property
    def _found(self) -> TrainerEvents:
        return self._hidden["events"]


def exported_by(callback: TrainerCallback) -> dict[str, Any]:
    """Return the attributes that a callback exports by itself and that are not plain ones."""
    if not isinstance(callback, ExportableState):
        return {}
    found = dict(callback.state().get("attributes", {}))
    return {name: value for name, value in found.items() if name not in vars(callback)}
