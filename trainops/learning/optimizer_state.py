"""State of optimizers: its expected layout, from a trial step, and its exact restore."""

import contextlib
import copy
import inspect
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

State = Mapping[int, Mapping[str, object]]  # what is kept of each parameter, by its number


def needs_closure(optimizer: Optimizer) -> bool:
    """Whether a step must be able to ask for the loss again, as that of LBFGS."""
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    return closure is not None and closure.default is closure.empty


def template(optimizer: Optimizer) -> State:
    """Return what a fresh optimizer of this class and these settings keeps after one step.

    The step is taken on zeros of the parameters' shapes and types, on the CPU and by gradients of
    zero: dense ones, or sparse ones where it takes no others. Nothing of the optimizer itself
    changes. Empty where a class cannot take such a step; its state is then not checked.
    """
    for is_sparse in (False, True):
        with contextlib.suppress(Exception):  # of any class: then there is nothing to compare with
            return _after_one_step(optimizer, is_sparse=is_sparse)
    return {}


def load_optimizer(optimizer: Optimizer, saved: Mapping[str, Any]) -> None:
    """Load a state dict with the types that it has.

    torch casts every floating-point value but "step" to the type of its parameter, which rounds,
    for instance, the products of NAdam beside weights of bfloat16.
    """
    optimizer.load_state_dict(dict(saved))
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    for number, values in saved["state"].items():
        kept = optimizer.state[parameters[number]]
        for name, value in values.items():
            if name != "step" and isinstance(value, Tensor) and value.dtype != kept[name].dtype:
                kept[name] = value.to(kept[name].device, copy=True)


def _after_one_step(optimizer: Optimizer, *, is_sparse: bool) -> State:
    twin = copy.copy(optimizer)  # shares nothing that a step changes, once these two are new
    twin.state = defaultdict(dict)
    twin.param_groups = [
        {
            **group,
            # What is for a GPU only is not to be had here; the same is kept without.
            **{name: False for name in ("capturable",) if name in group},
            **{name: each.tolist() for name, each in group.items() if isinstance(each, Tensor)},
            "params": [_zeros(each, is_sparse=is_sparse) for each in group["params"]],
        }
        for group in optimizer.param_groups
    ]
    type(twin).step(twin)  # a schedule has put a step of its own in front of the optimizer's
    return twin.state_dict()["state"]  # type: ignore[no-any-return]


def _zeros(parameter: Tensor, *, is_sparse: bool) -> Tensor:
    zeros = torch.zeros_like(parameter, device="cpu", requires_grad=False)
    zeros.grad = zeros.to_sparse() if is_sparse else torch.zeros_like(zeros)
    return zeros
