"""States of modules whose sizes are those of their first batch, as nn.LazyLinear."""

from collections.abc import Container, Mapping
from itertools import chain
from typing import Any

from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import is_lazy


def lazy_names(module: nn.Module) -> set[str]:
    """Return the names of the parameters and buffers that have no size yet."""
    parameters = module.named_parameters(remove_duplicate=False)
    buffers = module.named_buffers(remove_duplicate=False)
    return {name for name, each in chain(parameters, buffers) if is_lazy(each)}


def state_of_module(module: nn.Module, also: Container[str] = ()) -> dict[str, Any]:
    """Return its state without what has no size yet: a resume leaves that to its first batch.

    `also`: names that stay in it.
    """
    state: dict[str, Any] = module.state_dict()
    lazy = {name for name in lazy_names(module) if name not in also}
    return {name: each for name, each in state.items() if name not in lazy} if lazy else state


def load_module(module: nn.Module, state: Mapping[str, Any]) -> None:
    """Load a state, which gives lazy parameters and buffers their sizes; perhaps only buffers."""
    names = dict(module.named_parameters()).keys() | lazy_names(module)
    module.load_state_dict(state, strict=names <= state.keys())
    for each in module.modules():
        if isinstance(each, LazyModuleMixin) and getattr(each, "num_features", None) == 0:
            _take_over_size(each)


def _take_over_size(norm: nn.Module) -> None:
    """Set the size of a lazy norm: torch sets it with the parameters, but not where it loads."""
    values = (*norm.parameters(recurse=False), *norm.buffers(recurse=False))
    sizes = [len(each) for each in values if not is_lazy(each) and each.ndim]
    norm.num_features = max(sizes, default=0)  # type: ignore[assignment]
