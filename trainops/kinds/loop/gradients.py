"""Gradients that are held from one batch to a later one."""

from collections.abc import Callable, Mapping

from torch import Tensor, nn


class Gradients:
    """The gradients of a module, where they are held until a later batch."""

    def __init__(self, module: nn.Module, is_held: Callable[[], bool]) -> None:
        self._module, self._is_held = module, is_held

    def state_dict(self) -> dict[str, Tensor]:
        found = {name: each.grad for name, each in self._module.named_parameters()}
        held = found if self._is_held() else {}
        return {name: each for name, each in held.items() if each is not None}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        for name, each in self._module.named_parameters():
            each.grad = state[name].to(each.device, copy=True) if name in state else None
