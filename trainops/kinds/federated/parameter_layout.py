"""A model's parameters as one vector, and its buffers by name."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from trainops.runtime.errors import InputError

Buffers = dict[str, Tensor]


class ParameterLayout:
    """What of a model moves: its trained parameters, in their order, and its buffers.

    The parameters lie side by side in `values` (P,), which the model computes with: who changes the
    one changes the other. Those that are `frozen`, by name, are the same everywhere and stay in the
    model.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.parameters = [each for each in model.parameters() if each.requires_grad]
        named = dict(model.named_parameters())
        self.names = [name for name, each in named.items() if each.requires_grad]
        self.frozen = {name: each for name, each in named.items() if not each.requires_grad}
        self.sizes = [each.numel() for each in self.parameters]
        self.tied = _tied(model)
        self._buffers = [name for name, _ in model.named_buffers()]
        if len(types := {each.dtype for each in self.parameters}) != 1:
            found = ", ".join(sorted(map(str, types))) or "none"
            raise InputError({"recipe": f"its parameters are to be of one type, and are {found}"})
        self.values = torch.cat([each.detach().reshape(-1) for each in self.parameters])
        for each, piece in zip(self.parameters, self.values.split(self.sizes), strict=True):
            each.data = piece.view_as(each)

    def vector(self) -> Tensor:
        """Return a copy of the parameters: (P,)."""
        return self.values.clone()

    def pieces(self, rows: Tensor) -> list[Tensor]:
        """Return the parameters (n, ...) of n models in their order: views of rows (n, P)."""
        split = zip(self.parameters, rows.split_with_sizes(self.sizes, 1), strict=True)
        return [piece.view(-1, *each.shape) for each, piece in split]

    def take_gradients(self) -> Tensor:
        """Return the parameters' gradients (P,), zero where none came back, and forget them."""
        found = [
            torch.zeros_like(each) if each.grad is None else each.grad.to_dense()
            for each in self.parameters
        ]
        for each in self.parameters:
            each.grad = None
        return torch.cat([each.reshape(-1) for each in found])

    def buffers(self) -> Buffers:
        """Return a copy of all buffers: those that a model does not save may change, too."""
        return {name: self.model.get_buffer(name).detach().clone() for name in self._buffers}

    def put(self, vector: Tensor, buffers: Mapping[str, Tensor]) -> None:
        """Write parameters and buffers into the model."""
        with torch.no_grad():
            self.values.copy_(vector)
            for name in self._buffers:
                if name in buffers:
                    self.model.get_buffer(name).copy_(buffers[name])

    def freeze(self, state: Mapping[str, Tensor]) -> None:
        """Write those parameters of a model's state into the model that are not trained."""
        with torch.no_grad():
            for name, each in self.frozen.items():
                each.copy_(state[name])

    def state_dict(self, vector: Tensor, buffers: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return what the model's own state would be with these parameters and all buffers."""
        pieces = zip(self.names, self.parameters, vector.split(self.sizes), strict=True)
        given = {name: values.view_as(each) for name, each, values in pieces} | dict(buffers)
        own = self.model.state_dict() | {name: buffers[name] for name in self._buffers}
        found = {name: given.get(name, each) for name, each in own.items()}
        return found | {name: found[other] for name, other in self.tied.items() if name in found}

    def taken_apart(self, state: Mapping[str, Tensor]) -> tuple[Tensor, Buffers]:
        """Return vector and buffers of a model's state, as copies on the model's device."""
        own = dict(self.model.named_buffers())
        vector = torch.cat([state[name].detach().reshape(-1) for name in self.names])
        buffers = {
            name: state[name].detach().to(each.device, copy=True) for name, each in own.items()
        }
        return vector.to(self.parameters[0].device), buffers


def _tied(model: nn.Module) -> dict[str, str]:
    """Return further names of tensors that have several, and each one's first."""
    named = [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]
    first: dict[int, str] = {}
    firsts = {name: first.setdefault(id(each), name) for name, each in named}
    return {name: other for name, other in firsts.items() if name != other}


def average_of(
    buffers: list[Buffers], weights: Tensor, combine: Callable[[Tensor, Tensor], Tensor]
) -> Buffers:
    """Return what buffers of many clients become: of those that measure, what `combine` makes of
    (K, N) numbers and weights (K,), as a strategy does with updates.

    A mean of variances leaves out that the means differ: it is what FedAvg does. Counters hold the
    largest, since a mean of numbers of batches is the number of no batches at all.
    """
    averaged = {}
    for name, first in buffers[0].items():
        if all(torch.equal(first, each[name]) for each in buffers):
            averaged[name] = first  # a constant stays what it is, to the last bit
            continue
        stacked = torch.stack([each[name] for each in buffers])
        if first.is_floating_point() or first.is_complex():
            parts = torch.view_as_real(stacked) if first.is_complex() else stacked
            whole = combine(parts.reshape(len(parts), -1).to(torch.float64), weights)
            whole = whole.view(parts.shape[1:]).to(parts.dtype)
            averaged[name] = torch.view_as_complex(whole) if first.is_complex() else whole
        else:  # by NumPy: torch compares no unsigned integers of more than eight bits
            largest = torch.from_numpy(stacked.cpu().numpy().max(axis=0, keepdims=True))
            averaged[name] = largest.to(first.device).squeeze(0)
    return averaged


def require_private(model: nn.Module, mode: str) -> None:
    """Refuse a model in which one example's gradient follows from others, or that measures them.

    Also one of numbers in which a clipped norm, or a sum, is off by more than noise hides. Raises
    InputError, which names the layers and the way out.
    """
    types = {each.dtype for each in model.parameters() if each.requires_grad}
    if other := types - {torch.float32, torch.float64}:
        raise InputError(
            {
                "privacy.mode": f"got {mode!r}; parameters of {', '.join(sorted(map(str, other)))} "
                "are clipped and added too roughly; allowed: float32 and float64"
            }
        )
    wrong = [
        name
        for name, each in model.named_modules()
        if isinstance(each, nn.modules.batchnorm._BatchNorm)
        or (isinstance(each, _NormBase) and each.track_running_stats)
    ]
    if wrong:
        raise InputError(
            {
                "privacy.mode": f"got {mode!r}; batch normalisation ({', '.join(wrong)}) mixes the "
                "examples of a batch and keeps their statistics; use GroupNorm or LayerNorm (the "
                "built-in recipes: parameters.norm = group)"
            }
        )
