"""State that a LightningModule has beside its parameters and buffers."""

from collections.abc import Mapping
from typing import Any

from lightning.pytorch import LightningModule
from torch import nn

from trainops.kinds.loop.metric_states import Encoded, decode, encode, require_whole
from trainops.learning.modes import with_modes


class Attributes:
    """Plain attributes: numbers, texts, tensors, and lists, tuples and dicts of them.

    Modules collect outputs of steps in such attributes until an epoch ends. Those of the class
    itself and names with an underscore are left out.
    """

    def __init__(self, module: LightningModule) -> None:
        self._module = module
        self._left_out = vars(LightningModule()).keys() | {"training"}

    def state_dict(self) -> dict[str, Encoded]:
        found = {}
        for name, value in vars(self._module).items():
            if name in self._left_out or name.startswith("_"):
                continue
            require_whole(f"the attribute {name!r} of the module", value)
            if (encoded := encode(value)) is not None:
                found[name] = encoded
        return found

    def load_state_dict(self, state: Mapping[str, Encoded]) -> None:
        for name, value in state.items():
            setattr(self._module, name, decode(value))


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
