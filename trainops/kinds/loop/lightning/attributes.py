"""State that a LightningModule has beside its parameters and buffers."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lightning.pytorch import Callback, LightningDataModule, LightningModule
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler

from trainops.kinds.loop.changed_attributes import contents, is_stateful, is_unchanged
from trainops.kinds.loop.containers import (
    decode_container,
    digest_of,
    encode_container,
    encode_dataclass,
    holds_parameters,
)
from trainops.kinds.loop.lightning.manual import ManualOptimizer
from trainops.kinds.loop.lightning.own_names import is_own
from trainops.kinds.loop.metric_states import Encoded, decode, encode, require_whole
from trainops.kinds.loop.named_classes import class_of, has_fields, name_of
from trainops.learning.measures import is_metric
from trainops.learning.modes import with_modes
from trainops.runtime.errors import InputError

STATE = ".state_dict()"  # the end of the key of an object's state
SAVED = "in dataclasses, numbers, texts, tensors, NumPy arrays, enums, and containers of them"
# Objects that have a state, which is not saved as an attribute.
OTHERS = (
    nn.Module, type, Callback, DataLoader, Dataset, Sampler, LightningDataModule, ManualOptimizer
)  # fmt: skip


class Attributes:
    """Plain attributes: numbers, texts, tensors, and lists, tuples and dicts of them.

    Modules collect outputs of steps in such attributes until an epoch ends. Those of the class
    itself are left out. Other containers, dataclasses, attributes of submodules, and names with an
    underscore are saved where they have changed since `begin`; objects with state_dict and
    load_state_dict always. A field of a dataclass that has changed and is not plain raises an
    InputError, which names it.
    """

    def __init__(self, module: LightningModule) -> None:
        self._module = module
        self._left_out = vars(LightningModule()).keys() | {"training"}
        self._kept: frozenset[int] = frozenset()  # ids of objects whose state is saved elsewhere
        self._before: dict[str, str] = {}  # digests
        self._instances: dict[str, Any] = {}  # of dataclasses, and what is not plain in them
        self._contents: dict[str, list[Any]] = {}
        self._objects: frozenset[str] = frozenset()  # places of those with a state

    def begin(self, kept: Iterable[object]) -> None:
        """Remember what does not need to be saved, after the hooks that each attempt calls."""
        self._kept = frozenset(map(id, kept))
        found: dict[str, Any] = {}
        further = self._further(self._plain(), found)
        self._before = {place: digest_of(each) for place, each in further}
        self._instances = found
        self._contents = {place: contents(each) for place, each in found.items()}
        self._objects = frozenset(self._states())

    def state_dict(self) -> dict[str, Encoded]:
        plain = self._plain()
        found: dict[str, Any] = {}
        # No attribute has a dot in its name, as these do.
        further = {
            place: each
            for place, each in self._further(plain, found)
            if digest_of(each) != self._before.get(place)
        }
        self._require_saved(found)
        states = self._states()
        if new := sorted(states.keys() - self._objects):
            name = new[0].removesuffix(STATE).removeprefix(".")
            problem = f"the attribute {name!r} of the module has a state, and was created within "
            problem += "the training"
            allowed = "to create it in __init__, configure_model or on_fit_start"
            raise InputError({"recipe": f"{problem}; allowed: {allowed}"})
        return plain | further | states

    def load_state_dict(self, state: Mapping[str, Encoded]) -> None:
        for name, saved in state.items():
            place, dot, own = name.removesuffix(STATE).rpartition(".")
            if not dot:
                setattr(self._module, name, decode(saved))
                continue
            owner = self._module.get_submodule(place)
            if name.endswith(STATE):
                getattr(owner, own).load_state_dict(decode_container(saved))
            else:
                setattr(owner, own, decode_container(saved, getattr(owner, own, None)))

    def _plain(self) -> dict[str, Encoded]:
        """Return the plain attributes of the module itself."""
        found = {}
        for name, value in self._of(self._module):
            if name.startswith("_"):
                continue
            require_whole(f"the attribute {name!r} of the module", value)
            if not holds_parameters(value) and (encoded := encode(value)) is not None:
                found[name] = encoded
        return found

    def _further(
        self, plain: Mapping[str, Encoded], found: dict[str, Any]
    ) -> Iterator[tuple[str, Encoded]]:
        """Yield what else consists of plain values, in the module and its parts.

        `found` gets dataclasses, and what is not plain in them, by place.
        """
        for place, value in self._all():
            if place.removeprefix(".") in plain:
                continue
            if isinstance(value, Tensor) and value.requires_grad:  # computed from parameters
                continue
            if holds_parameters(value):
                continue
            if has_fields(value) and not isinstance(value, OTHERS):
                yield place, encode_dataclass(value, place, self._instances, found)
            elif (encoded := encode_container(value)) is not None:
                yield place, encoded

    def _require_saved(self, found: Mapping[str, Any]) -> None:
        """Raise InputError for a field that has changed, and cannot be restored."""
        for place, value in found.items():
            if has_fields(value) and class_of(name_of(type(value))) is type(value):
                continue
            if not is_unchanged(value, self._instances.get(place), self._contents.get(place, [])):
                problem = f"{place.removeprefix('.')!r} of the module has changed, and is a "
                problem += f"{type(value).__name__}, which cannot be saved"
                raise InputError({"recipe": f"{problem}; allowed: {SAVED}"})

    def _states(self) -> dict[str, Encoded]:
        """Return the states of objects that consist of plain values."""
        found = {}
        for place, value in self._all():
            if not is_stateful(value) or isinstance(value, OTHERS) or id(value) in self._kept:
                continue
            if (encoded := encode_container(value.state_dict())) is not None:
                found[f"{place}{STATE}"] = encoded
        return found

    def _all(self) -> Iterator[tuple[str, Any]]:
        """Yield attributes with their places; of the module itself, these begin with a dot."""
        for place, module in self._module.named_modules():
            if not is_metric(module):  # their states are saved as such
                for name, value in self._of(module):
                    yield f"{place}.{name}", value

    def _of(self, module: nn.Module) -> list[tuple[str, Any]]:
        return [
            (name, value)
            for name, value in vars(module).items()
            if name not in self._left_out and is_own(type(module), name)
        ]


class Modes:
    """Which modules are in training mode, and which parameters are trained: hooks change both."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def state_dict(self) -> dict[str, dict[str, bool]]:
        return {
            "training": {name: each.training for name, each in with_modes(self._module)},
            "trained": {name: e.requires_grad for name, e in self._module.named_parameters()},
        }

    def load_state_dict(self, state: Mapping[str, Mapping[str, bool]]) -> None:
        for name, module in with_modes(self._module):
            module.training = state["training"][name]
        for name, parameter in self._module.named_parameters():
            parameter.requires_grad_(state["trained"][name])


class SavedByHooks:
    """What on_save_checkpoint adds to a checkpoint, and on_load_checkpoint reads."""

    def __init__(self, module: LightningModule, progress: Mapping[str, Any]) -> None:
        self._module, self._progress = module, progress

    def state_dict(self) -> dict[str, Any]:
        own = self._own()
        checkpoint = dict(own)
        self._module.on_save_checkpoint(checkpoint)
        found = {name: each for name, each in checkpoint.items() if name not in own}
        require_whole("what on_save_checkpoint adds", found)
        return found

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._module.on_load_checkpoint({**self._own(), **state})

    def _own(self) -> dict[str, Any]:
        state, step = self._module.state_dict(), self._progress["global_step"]
        return {"state_dict": state, "global_step": step, "epoch": self._module.current_epoch}
