"""Clipped sums of single examples' gradients, layer by layer, without a gradient for each example.

A layer's gradient for one example is a product of what went into it and what came back, so its norm
follows from the two: Goodfellow, "Efficient per-example gradient computations" (2015), for linear
layers; Rochette, Manoel and Tramel, "Efficient per-example gradient computations in convolutional
neural networks" (2019). Only for chains of known layers, none of which mixes examples.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainops.kinds.federated.clipping import (
    Sums,
    odd_ones,
    shares_of,
    sum_of_odd,
    without,
)
from trainops.kinds.federated.fast.known_layers import is_unmodified
from trainops.kinds.federated.fast.losses import losses_of
from trainops.learning.ingredients import Loss

# Layers without parameters that treat each example by itself.
PLAIN = (
    nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Flatten, nn.Dropout,
    nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.Identity,
)  # fmt: skip


def can_sum(model: nn.Module) -> bool:
    """Whether the model is a chain of layers that are known here, each used once and trained."""
    layers = _layers(model)
    num_names = len(list(model.named_parameters(remove_duplicate=False)))
    return (
        all(type(each) is nn.Sequential or type(each) in (*RULES, *PLAIN) for each in layers)
        and type(model) is nn.Sequential
        and len({id(each) for each in layers}) == len(layers)
        and all(each.requires_grad for each in model.parameters())
        and len(list(model.parameters())) == num_names  # none is shared
        and all(is_unmodified(each) and not _is_unusual(each) for each in layers)
    )


class GhostClippedSums:
    """Sums of clipped gradients, by the names of the parameters."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        self._model = model
        named = model.named_modules(remove_duplicate=False)
        self._layers = [(name, each) for name, each in named if type(each) in RULES]
        self._losses = losses_of(loss)

    def clipped(self, inputs: tuple[Tensor, ...], targets: Tensor, max_norm: float) -> Sums:
        """Return the sum over the examples of each gradient, clipped to a norm over all layers."""
        before, after, outputs = self._forward(inputs)
        together = outputs.detach().unsqueeze(0), targets.unsqueeze(0)
        _, cotangents = self._losses(*together, outputs.new_ones(1, len(targets)))
        gradients = torch.autograd.grad(outputs, after, cotangents.squeeze(0))
        rules = self._rules(before, gradients)
        squares = torch.stack([each for rule in rules for each in rule.squares])
        extra: Sums = {}
        if (odd := odd_ones(squares)) is not None:
            extra = sum_of_odd(
                odd, lambda some: self._named([rule.of_each(some) for rule in rules]), max_norm
            )
            before, back = ([without(each, odd) for each in rows] for rows in (before, gradients))
            rules = self._rules(before, back)
        norms = torch.stack([rule.squares[0] for rule in rules]).sum(dim=0)
        shares = shares_of(norms, max_norm)
        sums = self._named([rule.summed(shares) for rule in rules])
        return sums | {name: sums[name] + each for name, each in extra.items()}

    def _rules(self, before: Sequence[Tensor], back: Sequence[Tensor]) -> "list[LayerRule]":
        """Return each layer's rule, of what went into it and what came back to it."""
        return [
            RULES[type(layer)](layer, entered, came_back)
            for (_, layer), entered, came_back in zip(self._layers, before, back, strict=True)
        ]

    def _named(self, sums: Sequence[Mapping[str, Tensor]]) -> Sums:
        """Return what was reported of each layer's parameters, by their names."""
        layers = zip(self._layers, sums, strict=True)
        return {f"{layer}.{what}": e for (layer, _), each in layers for what, e in each.items()}

    def _forward(self, inputs: tuple[Tensor, ...]) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """Return what went into each layer with parameters, what came out, and the outputs."""
        before: list[Tensor] = []
        after: list[Tensor] = []

        def seen(_: nn.Module, entered: tuple[Tensor, ...], left: Tensor) -> None:
            before.append(entered[0].detach())
            after.append(left)

        watches = [layer.register_forward_hook(seen) for _, layer in self._layers]
        try:
            outputs: Tensor = self._model(*inputs)
        finally:
            for watch in watches:
                watch.remove()
        return before, after, outputs


@dataclass(frozen=True, slots=True)
class LayerRule:
    """What is known of each example's gradient of one layer, without all of them in memory.

    squares: each example's squared norm (N,), and whatever else must not overflow for it.
    summed: the sums for given shares (N,) of each example.
    of_each: some examples' own gradients (n, ...).
    """

    squares: Sequence[Tensor]
    summed: Callable[[Tensor], Mapping[str, Tensor]]
    of_each: Callable[[Tensor], Mapping[str, Tensor]]


def _linear(layer: nn.Module, entered: Tensor, back: Tensor) -> LayerRule:
    if entered.ndim > 2:  # several places share the weights: they add up before the norm
        return _of_each(layer, torch.einsum("n...i,n...o->noi", entered, back),
                        back.flatten(1, -2).sum(dim=1))  # fmt: skip
    squares, others = back.square().sum(dim=1), entered.square().sum(dim=1)
    norms = squares * others
    has_bias = isinstance(layer.bias, Tensor)

    def summed(shares: Tensor) -> Mapping[str, Tensor]:
        scaled = back * shares[:, None]
        return {"weight": scaled.T @ entered} | ({"bias": scaled.sum(dim=0)} if has_bias else {})

    def of_each(some: Tensor) -> Mapping[str, Tensor]:
        own = back[some].double()
        weights = torch.einsum("ni,no->noi", entered[some].double(), own)
        return {"weight": weights} | ({"bias": own} if has_bias else {})

    return LayerRule((norms + squares if has_bias else norms, squares, others), summed, of_each)


def _conv(layer: nn.Module, entered: Tensor, back: Tensor) -> LayerRule:
    if not isinstance(layer, nn.Conv2d) or isinstance(layer.padding, str):
        raise TypeError(type(layer).__name__)
    patches = nn.functional.unfold(
        entered, layer.kernel_size, layer.dilation, layer.padding, layer.stride
    )  # (N, inputs * height * width, places)
    flat = back.flatten(2)  # (N, outputs, places)
    weights = torch.bmm(flat, patches.transpose(1, 2)).view(len(back), *layer.weight.shape)
    return _of_each(layer, weights, flat.sum(dim=2))


def _group_norm(layer: nn.Module, entered: Tensor, back: Tensor) -> LayerRule:
    if not isinstance(layer, nn.GroupNorm):
        raise TypeError(type(layer).__name__)
    normed = nn.functional.group_norm(entered, layer.num_groups, eps=layer.eps)
    shape = (*back.shape[:2], -1)  # of a layer after linear ones, too: (N, C), of one place
    return _of_each(layer, (normed * back).reshape(shape).sum(2), back.reshape(shape).sum(2))


def _of_each(layer: nn.Module, weights: Tensor, biases: Tensor) -> LayerRule:
    """The rule where each example's own gradients are there: (N, ...) and (N, outputs)."""
    given = {"weight": weights} | ({"bias": biases} if isinstance(layer.bias, Tensor) else {})
    norms = torch.stack([each.flatten(1).square().sum(dim=1) for each in given.values()]).sum(dim=0)

    def summed(shares: Tensor) -> Mapping[str, Tensor]:
        return {
            name: (shares @ each.flatten(1)).view(each.shape[1:]) for name, each in given.items()
        }

    return LayerRule((norms,), summed, lambda some: {name: e[some] for name, e in given.items()})


RULES: Mapping[type[nn.Module], Callable[[nn.Module, Tensor, Tensor], LayerRule]] = {
    nn.Linear: _linear,
    nn.Conv2d: _conv,
    nn.GroupNorm: _group_norm,
}


def _layers(model: nn.Module) -> list[nn.Module]:
    return [each for _, each in model.named_modules(remove_duplicate=False)]


def _is_unusual(layer: nn.Module) -> bool:
    """Whether a layer of a known type is set up in a way that no rule here is for."""
    if isinstance(layer, nn.Conv2d):
        return layer.groups != 1 or layer.padding_mode != "zeros" or isinstance(layer.padding, str)
    if isinstance(layer, nn.GroupNorm):
        return not layer.affine
    return isinstance(layer, nn.Flatten) and layer.start_dim != 1
