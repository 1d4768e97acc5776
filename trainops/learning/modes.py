"""Modes of modules, and which parameters are trained: both are part of checkpoints."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import TypeAlias

from torch import nn
from torch.jit import ScriptModule

from trainops.runtime.errors import IncompatibleState, InputError

log = logging.getLogger(__name__)
FORGOTTEN = "the version that saved the checkpoint trained parts in eval mode after a validation"
MODE = "training"
MAX_NAMED = 20  # names in a message
Places: TypeAlias = Mapping[str, bool]  # by the name of a module or parameter in the model


def require_places(name: str, state: object) -> None:
    """Raise IncompatibleState unless a state has changes of modules or parameters by model."""
    of_models = list(state.values()) if isinstance(state, Mapping) else [None]
    for each in of_models:
        if not isinstance(each, Mapping) or not all(
            isinstance(place, str) and isinstance(value, bool) for place, value in each.items()
        ):
            raise IncompatibleState(f"the {name} of the state cannot be read: {state!r:.60}")


def with_modes(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield each part that has a mode, by name: frozen TorchScript has none.

    `train` gives frozen TorchScript an attribute `training`, which changes nothing in it.
    """
    for place, each in model.named_modules():
        is_script = isinstance(each, ScriptModule)
        if not is_script or (hasattr(each, MODE) and MODE not in vars(each)):
            yield place, each


def start_modes(model: nn.Module, *, is_logged: bool = True) -> None:
    """Call each `train` method that a class overrides, with the mode that the module has.

    Such methods switch parts to eval mode; none is switched back to training mode.
    `is_logged`: whether parts in eval mode are logged.
    """
    modes = [(each, each.training) for _, each in with_modes(model)]
    for each, _ in reversed(modes):  # inner ones first
        if type(each).train is not nn.Module.train:
            _train(each)
            for part, mode in modes:
                part.training = mode and part.training
            modes = [(part, part.training) for part, _ in modes]
    evaluated = _changes(model, {name: True for name, _ in with_modes(model)})
    if evaluated and is_logged:
        names = ", ".join(name or "the whole model" for name in islice(evaluated, MAX_NAMED))
        more = len(evaluated) - MAX_NAMED
        names += f" and {more} more" if more > 0 else ""
        log.warning("in eval mode at the start of the training: %s", names)


def _train(module: nn.Module) -> None:
    """Call `train` with the mode of the module. Raises InputError where it takes no mode."""
    try:
        module.train(module.training)
    except TypeError as error:
        problem = f"{type(module).__name__}.train was called with a mode, and raised {error!r}"
        allowed = "train(self, mode=True), or a method of another name"
        raise InputError({"recipe": f"{problem}; allowed: {allowed}"}) from error


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Let the model be in eval mode within the block, and each part in its own mode after it."""
    modes = [(each, each.training) for _, each in with_modes(model)]
    model.eval()
    try:
        yield
    finally:
        for each, mode in modes:  # outer ones first: a `train` method may do more than set modes
            if each.training != mode:
                each.train(mode)
                each.training = mode


class ModeChanges:
    """The modes of models, saved as what has changed since the training began.

    A state has the modules whose mode has changed, without those that changed with the module
    around them: {"model": {"": False}} of a model that is in eval mode as a whole.
    has_changed: whether `look` has found a change; then, or once loaded, there is a state to save.
    """

    def __init__(self, models: Mapping[str, nn.Module]) -> None:
        self._models = dict(models)
        self._before = {
            name: {place: each.training for place, each in with_modes(model)}
            for name, model in models.items()
        }
        modules = [each for model in models.values() for _, each in with_modes(model)]
        self._modes = [(each, each.training) for each in modules]
        self.has_changed = False

    @property
    def begin_in_eval(self) -> bool:
        """Whether a part was in eval mode when the training began."""
        return not all(mode for _, mode in self._modes)

    def look(self) -> None:
        self.has_changed = self.has_changed or any(
            each.training != mode for each, mode in self._modes
        )

    def state_dict(self) -> dict[str, dict[str, bool]]:
        found = {name: _changes(each, self._before[name]) for name, each in self._models.items()}
        return {name: changes for name, changes in found.items() if changes}

    def load_state_dict(self, state: Mapping[str, Places]) -> None:
        self.has_changed = True
        for name, model in self._models.items():
            for place, each in with_modes(model):
                mode = _mode(place, self._before[name], state.get(name, {}))
                each.training = each.training if mode is None else mode


class TrainedChanges:
    """Which parameters are trained, saved as what has changed since `begin`.

    has_changed: as of ModeChanges.
    """

    def __init__(self) -> None:
        self._before: dict[str, list[tuple[str, nn.Parameter, bool]]] = {}
        self.has_changed = False

    def begin(self, models: Mapping[str, nn.Module]) -> None:
        """Take what is trained now in these models as that from which a state differs."""
        for name, model in models.items():
            parameters = model.named_parameters()
            self._before[name] = [(place, each, each.requires_grad) for place, each in parameters]

    def look(self) -> None:
        self.has_changed = self.has_changed or any(
            each.requires_grad != before for of in self._before.values() for _, each, before in of
        )

    def state_dict(self) -> dict[str, dict[str, bool]]:
        found = {
            name: {place: not before for place, each, before in of if each.requires_grad != before}
            for name, of in self._before.items()
        }
        return {name: changes for name, changes in found.items() if changes}

    def load_state_dict(self, state: Mapping[str, Places]) -> None:
        self.has_changed = True
        for name, of in self._before.items():
            for place, each, before in of:
                is_trained = state.get(name, {}).get(place, before)
                if each.requires_grad != is_trained:
                    each.requires_grad_(is_trained)


def _changes(model: nn.Module, before: Places) -> dict[str, bool]:
    changes: dict[str, bool] = {}
    for place, each in with_modes(model):
        if each.training != _mode(place, before, changes):
            changes[place] = each.training
    return changes


def _mode(place: str, before: Places, changes: Places) -> bool | None:
    """Return the mode of a module; None for one that was not there before."""
    around = place
    while around and around not in changes:
        around = around.rpartition(".")[0]
    return changes.get(around, before.get(place))
