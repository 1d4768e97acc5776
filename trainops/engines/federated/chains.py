"""Many small networks at once: (n, B, ...) examples through n sets of parameters.

Plain chains of linear layers are multiplied directly; torch.func would spend more time on finding
out what to do than on doing it. Every other model goes through torch.func.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

# Layers that treat each number by itself, whatever the shape.
ELEMENTWISE = (
    nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Dropout, nn.Identity,
)  # fmt: skip
Parameters = dict[str, Tensor]  # each (n, ...)
ManyModels = Callable[[Parameters, tuple[Tensor, ...]], Tensor]


def many_models(model: nn.Module) -> ManyModels:
    """Return what gives the outputs (n, B, ...) of n models for inputs (n, B, ...).

    Raises ValueError where a layer stands in two places: torch.func would lose its parameters.
    """
    once = {id(each): name for name, each in model.named_modules()}
    for name, each in model.named_modules(remove_duplicate=False):
        if once[id(each)] != name and next(each.parameters(), None) is not None:
            raise ValueError(f"layer {name} is layer {once[id(each)]} again")

    def of_one(parameters: Parameters, inputs: tuple[Tensor, ...]) -> Tensor:
        outputs: Tensor = functional_call(model, parameters, inputs)
        return outputs

    def of_chain(parameters: Parameters, inputs: tuple[Tensor, ...]) -> Tensor:
        (values,) = inputs
        for name, layer in model.named_children():
            if isinstance(layer, nn.Linear):
                values = _linear(
                    values, parameters[f"{name}.weight"], parameters.get(f"{name}.bias")
                )
            else:
                values = values.flatten(2) if isinstance(layer, nn.Flatten) else layer(values)
        return values

    return of_chain if _is_chain(model) else vmap(of_one, randomness="different")


def _is_chain(model: nn.Module) -> bool:
    layers = list(model.children())
    num_names = len(list(model.named_parameters(remove_duplicate=False)))
    return (
        type(model) is nn.Sequential
        and len({id(each) for each in layers}) == len(list(model))
        and all(each.requires_grad for each in model.parameters())
        and len(list(model.parameters())) == num_names  # none is shared
        and all(type(each) in (nn.Linear, nn.Flatten, *ELEMENTWISE) for each in layers)
        and all((f.start_dim, f.end_dim) == (1, -1) for f in layers if isinstance(f, nn.Flatten))
        and not any(getattr(each, "inplace", False) for each in layers)
    )


def _linear(values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return (n, ..., O) of values (n, ..., I), weights (n, O, I) and biases (n, O)."""
    flat = values.flatten(1, -2)
    if bias is None:
        outputs = torch.bmm(flat, weight.mT)
    else:
        outputs = torch.baddbmm(bias.unsqueeze(1), flat, weight.mT)
    return outputs.view(*values.shape[:-1], -1)
