"""Many small networks at once: (n, B, ...) examples through n rows of parameters, and back.

Chains of linear layers are multiplied directly, and their derivatives are written out, by the
kernels that autograd calls: autograd and torch.func would spend more time on finding out what to do
than on doing it. Every other model goes through them.
"""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from trainops.kinds.federated.fast.known_layers import is_unmodified
from trainops.kinds.federated.parameter_layout import ParameterLayout
from trainops.kinds.federated.plain import Models, Pull

# From what came back to a layer's outputs to what goes back to its inputs; None: nobody needs it.
Back: TypeAlias = Callable[[Tensor], Tensor | None]

aten = torch.ops.aten


def many_models(layout: ParameterLayout) -> Callable[[Tensor], Models]:
    """Return what makes n models of rows (n, P), with whose memory they compute.

    Raises ValueError where a layer stands in two places: torch.func would lose its parameters.
    """
    model = layout.model
    once = {id(each): name for name, each in model.named_modules()}
    for name, each in model.named_modules(remove_duplicate=False):
        if once[id(each)] != name and next(each.parameters(), None) is not None:
            raise ValueError(f"layer {name} is layer {once[id(each)]} again")
    return partial(VectorisedMLP if is_mlp(model) else AnyModels, layout)


def is_mlp(model: nn.Module) -> bool:
    """Whether the model is a plain chain of layers that are known here, all of them trained."""
    layers = list(model.children())
    num_names = len(list(model.named_parameters(remove_duplicate=False)))
    return (
        type(model) is nn.Sequential
        and len({id(each) for each in layers}) == len(list(model))
        and all(each.requires_grad for each in model.parameters())
        and len(list(model.parameters())) == num_names  # none is shared
        and all(type(each) in (nn.Linear, *OTHERS) for each in layers)
        and all((f.start_dim, f.end_dim) == (1, -1) for f in layers if isinstance(f, nn.Flatten))
        and all(is_unmodified(each) for each in (model, *layers))
    )


class VectorisedMLP:
    """n chains of linear layers, and what lies between them."""

    def __init__(self, layout: ParameterLayout, rows: Tensor) -> None:
        own = iter(layout.pieces(rows))
        self._layers: list[Callable[[Tensor], tuple[Tensor, Back]]] = []
        self._linear: list[Linear] = []
        for layer in layout.model.children():
            if isinstance(layer, nn.Linear):
                parameters = islice(own, len(list(layer.parameters())))
                self._linear.append(Linear(*parameters, is_first=not self._linear))
                self._layers.append(self._linear[-1])
            else:
                self._layers.append(partial(OTHERS[type(layer)], layer))

    def __call__(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, Pull]:
        (values,) = inputs
        backs = []
        for layer in self._layers:
            values, back = layer(values)
            backs.append(back)

        def pull(cotangents: Tensor) -> Tensor:
            coming: Tensor | None = cotangents
            for back in reversed(backs):
                if coming is not None:
                    coming = back(coming)
            found = (each for linear in self._linear for each in linear.gradients)
            return torch.cat([each.flatten(1) for each in found], dim=1)

        return values, pull


class AnyModels:
    """n of any model that torch.func takes."""

    def __init__(self, layout: ParameterLayout, rows: Tensor) -> None:
        self._layout, self._rows = layout, rows
        self._of_many = vmap(self._of_one, randomness="different")

    def __call__(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, Pull]:
        rows = self._rows.detach().requires_grad_()
        with torch.enable_grad():
            pieces = zip(self._layout.names, self._layout.pieces(rows), strict=True)
            outputs = self._of_many(dict(pieces), inputs)

        def pull(cotangents: Tensor) -> Tensor:
            (gradients,) = torch.autograd.grad(outputs, rows, cotangents)
            return gradients

        return outputs.detach(), pull

    def _of_one(self, parameters: dict[str, Tensor], inputs: tuple[Tensor, ...]) -> Tensor:
        outputs: Tensor = functional_call(self._layout.model, parameters, inputs)
        return outputs


class Linear:
    """n linear layers: weights (n, O, I), biases (n, O) or none.

    Numbers (n, B, O) lie in memory as (n, O, B): so MKL multiplies few outputs twice as fast.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None, *, is_first: bool) -> None:
        self.weight, self.turned = weight, weight.mT
        self.bias = None if bias is None else bias.unsqueeze(2)
        self.is_first = is_first  # nothing before it learns
        self.gradients: list[Tensor] = []  # of the newest way back

    def __call__(self, values: Tensor) -> tuple[Tensor, Back]:
        if values.ndim > 3:  # several places of an example share the weights
            return self._of_places(values)
        if self.bias is None:
            outputs = torch.bmm(self.weight, values.mT)
        else:
            outputs = torch.baddbmm(self.bias, self.weight, values.mT)
        return outputs.mT, partial(self._back, values)

    def _back(self, values: Tensor, coming: Tensor) -> Tensor | None:
        coming = coming.mT  # (n, O, B)
        self.gradients = [torch.bmm(coming, values)]
        if self.bias is not None:
            self.gradients.append(coming.sum(dim=2))
        return None if self.is_first else torch.bmm(self.turned, coming).mT

    def _of_places(self, values: Tensor) -> tuple[Tensor, Back]:
        outputs, back = self(values.flatten(1, -2))

        def back_to_places(coming: Tensor) -> Tensor | None:
            found = back(coming.flatten(1, -2))
            return None if found is None else found.reshape(values.shape)

        return outputs.unflatten(1, values.shape[1:-1]), back_to_places


def _flatten(_: Any, values: Tensor) -> tuple[Tensor, Back]:
    return values.flatten(2), lambda coming: coming.reshape(values.shape)


def _relu(_: Any, values: Tensor) -> tuple[Tensor, Back]:
    left = values.relu()
    return left, lambda coming: aten.threshold_backward(coming, left, 0)


def _leaky_relu(layer: Any, values: Tensor) -> tuple[Tensor, Back]:
    slope = layer.negative_slope
    return layer(values), lambda coming: aten.leaky_relu_backward(coming, values, slope, False)


def _elu(layer: Any, values: Tensor) -> tuple[Tensor, Back]:
    return layer(values), lambda coming: aten.elu_backward(coming, layer.alpha, 1, 1, False, values)


def _gelu(layer: Any, values: Tensor) -> tuple[Tensor, Back]:
    kind = layer.approximate
    return layer(values), lambda coming: aten.gelu_backward(coming, values, approximate=kind)


def _silu(layer: Any, values: Tensor) -> tuple[Tensor, Back]:
    return layer(values), lambda coming: aten.silu_backward(coming, values)


def _tanh(_: Any, values: Tensor) -> tuple[Tensor, Back]:
    left = values.tanh()
    return left, lambda coming: aten.tanh_backward(coming, left)


def _sigmoid(_: Any, values: Tensor) -> tuple[Tensor, Back]:
    left = values.sigmoid()
    return left, lambda coming: aten.sigmoid_backward(coming, left)


def _dropout(layer: Any, values: Tensor) -> tuple[Tensor, Back]:
    if not (layer.training and layer.p):
        return _identity(layer, values)
    left, is_kept = torch.native_dropout(values, layer.p, True)
    scale = 0.0 if layer.p == 1 else 1 / (1 - layer.p)
    return left, lambda coming: aten.native_dropout_backward(coming, is_kept, scale)


def _identity(_: Any, values: Tensor) -> tuple[Tensor, Back]:
    return values, lambda coming: coming


# Layers without parameters.
OTHERS: Mapping[type[nn.Module], Callable[[Any, Tensor], tuple[Tensor, Back]]] = {
    nn.Flatten: _flatten,
    nn.ReLU: _relu,
    nn.LeakyReLU: _leaky_relu,
    nn.ELU: _elu,
    nn.GELU: _gelu,
    nn.SiLU: _silu,
    nn.Tanh: _tanh,
    nn.Sigmoid: _sigmoid,
    nn.Dropout: _dropout,
    nn.Identity: _identity,
}
