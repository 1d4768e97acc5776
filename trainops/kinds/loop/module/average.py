"""An exponential moving average of a module's weights."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


class WeightAverage(nn.Module):
    """A copy of the module's models; its parameters are the average, its buffers the newest.

    Its state has the keys of the module's own state.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        super().__init__()
        children, parameters, buffers = copy.deepcopy(
            (
                dict(module.named_children()),
                dict(module.named_parameters(recurse=False)),
                dict(module.named_buffers(recurse=False)),
            )
        )
        for name, child in children.items():
            self.add_module(name, child)
        for name, parameter in parameters.items():
            self.register_parameter(name, parameter)
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer)
        self.requires_grad_(False)
        self._average = get_ema_multi_avg_fn(decay)

    @torch.no_grad()
    def add(self, module: nn.Module) -> None:
        """Let the average follow the module's weights by one step."""
        self._average(list(self.parameters()), list(module.parameters()), 0)
        for own, new in zip(self.buffers(), module.buffers(), strict=True):
            own.copy_(new)

    @contextmanager
    def applied_to(self, module: nn.Module) -> Iterator[None]:
        """Let the module compute with the averaged weights within the block."""
        pairs = list(zip(self.parameters(), module.parameters(), strict=True))
        _swap(pairs)
        try:
            yield
        finally:
            _swap(pairs)


def _swap(pairs: list[tuple[nn.Parameter, nn.Parameter]]) -> None:
    for one, other in pairs:
        one.data, other.data = other.data, one.data
