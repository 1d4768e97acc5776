"""Callbacks of a LightningModule: they are called before its own hooks, and their state is kept."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.callbacks import (
    EarlyStopping,
    LambdaCallback,
    LearningRateMonitor,
    ModelCheckpoint,
    ModelSummary,
    ProgressBar,
    RichModelSummary,
    RichProgressBar,
    TQDMProgressBar,
)

from trainops.kinds.loop.changed_attributes import ChangedAttributes
from trainops.kinds.loop.lightning.requirements import overrides
from trainops.kinds.loop.lightning.view import TrainerView
from trainops.runtime.errors import IncompatibleState, InputError

ALLOWED = (EarlyStopping, LearningRateMonitor, LambdaCallback)  # of Lightning's own
# Of these and of no derived classes, which may do more, none is called.
DISPLAYS = (ModelSummary, ProgressBar, RichModelSummary, RichProgressBar, TQDMProgressBar)
LIBRARIES = ("lightning", "pytorch_lightning")
TRAIN_END = "on_train_epoch_end"
NOT_CALLED = ("on_save_checkpoint", "on_load_checkpoint")
OWN = "EarlyStopping, LearningRateMonitor, LambdaCallback, and callbacks of your own"
# By the class: why a callback is not driven, and what does the same here.
REASONS = {
    "Checkpoint": (
        "trainops saves by itself, and its methods would not be called",
        "`checkpoint` of the config for when to save, `monitor` for the best weights, and a "
        "Callback of your own for the rest",
    ),
    "BaseFinetuning": (
        "it adds groups of parameters to the optimizer while training, which a resume would lack",
        "all parameters in configure_optimizers, requires_grad_(False) in on_fit_start, and "
        "requires_grad_(True) in on_train_epoch_start, of the module or a callback of your own",
    ),
    "StochasticWeightAveraging": ("it replaces schedules and trains a further epoch", OWN),
    "WeightAveraging": ("it exchanges the weights for validations", OWN),
    "Timer": ("limits.max_duration does the same", OWN),
}


class LightningHooks:
    """Calls hooks of callbacks and module, in the order of Lightning's Trainer."""

    def __init__(
        self,
        module: LightningModule,
        view: TrainerView,
        given: Sequence[Callback],
        monitors: Mapping[str, str],
    ) -> None:
        self._module, self._view = module, view
        configured = module.configure_callbacks()
        own = list(configured) if isinstance(configured, Sequence) else [configured]
        replaced = {
            type(each)
            for each in given
            if type(each) is not Callback and any(isinstance(one, type(each)) for one in own)
        }
        remaining = [*(each for each in given if type(each) not in replaced), *own]
        self.callbacks = []
        for each in remaining:
            if type(each) is ModelCheckpoint:
                _require_monitored(each, monitors)
            elif type(each) not in DISPLAYS:
                _require_callback(each)
                self.callbacks.append(each)
        view.callbacks = self.callbacks

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a hook of all callbacks, then that of the module; return what the module returns."""
        self.of_callbacks(name, *arguments)
        return getattr(self._module, name)(*arguments)

    def of_callbacks(self, name: str, *arguments: Any, **options: Any) -> None:
        for each in self.callbacks:
            getattr(each, name)(self._view, self._module, *arguments, **options)

    def end_epoch(self, name: str, show: Callable[[], None]) -> None:
        """Call a hook at the end of an epoch; `show` lets each of them read what is logged so far.

        It leaves out callbacks that monitor what the module logs in on_train_epoch_end.
        """
        for each in self.callbacks:
            if not (name == TRAIN_END and isinstance(each, EarlyStopping)):
                show()
                getattr(each, name)(self._view, self._module)
        show()
        getattr(self._module, name)()

    def monitor_train_epoch(self) -> None:
        """Call on_train_epoch_end of callbacks that monitor a metric."""
        for each in self.callbacks:
            if isinstance(each, EarlyStopping):
                getattr(each, TRAIN_END)(self._view, self._module)


class CallbackAttributes:
    """State of all callbacks: their state_dict, or else the plain attributes that have changed."""

    def __init__(self, callbacks: Sequence[Callback], left_out: Sequence[object]) -> None:
        self._callbacks = callbacks
        self._states = [
            each if overrides(each, Callback, "state_dict") else ChangedAttributes(each, left_out)
            for each in callbacks
        ]

    def state_dict(self) -> dict[str, Any]:
        states = [each.state_dict() for each in self._states]
        return {"names": self._names, "states": states}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state["names"] != self._names:
            saved, own = (", ".join(each) or "none" for each in (state["names"], self._names))
            raise IncompatibleState(f"the state has the callbacks {saved}; the module has {own}")
        for each, saved in zip(self._states, state["states"], strict=True):
            each.load_state_dict(saved)

    @property
    def _names(self) -> list[str]:
        return [type(each).__name__ for each in self._callbacks]


def _require_monitored(callback: ModelCheckpoint, monitors: Mapping[str, str]) -> None:
    """Raise InputError unless trainops selects the best model by the same metric."""
    metric, mode = callback.monitor, callback.mode
    if metric is None or monitors.get(metric) == mode:
        return
    own = ", ".join(f"{name} ({each})" for name, each in sorted(monitors.items()))
    problem = f"ModelCheckpoint monitors {metric} ({mode}), and the config {own}"
    allowed = "the same metric in `monitor` and `mode`, or in `monitors`, of the config"
    raise InputError({"recipe": f"{problem}; allowed: {allowed}"})


def _not_driven(kind: type[Callback]) -> InputError:
    default = ("trainops does not follow it", OWN)
    found = [(each, REASONS[each.__name__]) for each in kind.__mro__ if each.__name__ in REASONS]
    base, (reason, allowed) = found[0] if found else (kind, default)
    given = kind.__name__
    theirs = next(each for each in kind.__mro__ if each.__module__.partition(".")[0] in LIBRARIES)
    if theirs is not kind and base is not kind:
        given += f", which derives from {theirs.__name__}"
    return InputError({"recipe": f"got the callback {given}: {reason}; allowed: {allowed}"})


def _require_callback(callback: object) -> None:
    name = type(callback).__name__
    if not isinstance(callback, Callback):
        allowed = "objects of lightning.pytorch.Callback"
        raise InputError({"recipe": f"got a {name} as a callback; allowed: {allowed}"})
    for each in type(callback).__mro__:
        is_theirs = each.__module__.partition(".")[0] in LIBRARIES and each is not Callback
        if is_theirs and issubclass(each, Callback) and each not in ALLOWED:
            raise _not_driven(type(callback))
    for method in NOT_CALLED:
        if overrides(callback, Callback, method):
            problem = f"the callback {name} has the method {method}, which trainops does not call"
            raise InputError({"recipe": f"{problem}; allowed: state_dict and load_state_dict"})
