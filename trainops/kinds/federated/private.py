"""Gradients of single examples, clipped, summed and noised: what a DP-SGD step moves by.

Abadi et al., "Deep learning with differential privacy" (2016), algorithm 1. The sum is divided by
the expected number of examples, as the accounting needs: a step's true number is not public.
An example whose gradient is not finite adds nothing (see trainops.kinds.federated.clipping).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from trainops.kinds.federated.clipping import (
    Sums,
    odd_ones,
    shares_of,
    sum_of_odd,
    without,
)
from trainops.kinds.federated.implementation import ghost_clipped_sums
from trainops.kinds.federated.rng import normal
from trainops.learning.ingredients import Examples, Loss

Numbers = Callable[[Tensor], np.random.Generator]
CHUNK = 256  # examples whose gradients are in memory at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """What one step releases: norms are at most `max_grad_norm`, the noise a multiple of that."""

    multiplier: float
    max_grad_norm: float
    expected_examples: float


class NoisyGradients:
    """The noised mean gradient of examples, put where an optimizer looks for it."""

    def __init__(self, model: nn.Module, loss: Loss, noise: Noise) -> None:
        self.noise = noise
        self.parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
        self._fixed = {n: p for n, p in model.named_parameters() if not p.requires_grad}
        self._model, self._loss = model, loss
        self._layered = ghost_clipped_sums(model, loss)
        self._of_each = vmap(
            grad(self._loss_of_one), in_dims=(None, None, 0, 0), randomness="different"
        )

    def fill(self, examples: Examples, indices: Tensor, numbers: Numbers) -> None:
        """Set every parameter's gradient; `indices` may be empty, and then it is noise alone.

        `numbers` gives what draws the noise of this sum (P,): no two sums may have the same.
        """
        sizes = [each.numel() for each in self.parameters.values()]
        total = next(iter(self.parameters.values())).new_zeros(sum(sizes))
        named = zip(self.parameters.items(), total.split(sizes), strict=True)
        sums = {name: piece.view_as(each) for (name, each), piece in named}
        for some in indices.split(CHUNK):
            if len(some):
                inputs, targets = examples.batch(some)
                self._add(sums, inputs, targets)
        deviation = self.noise.multiplier * self.noise.max_grad_norm
        total += normal(numbers(total), total, deviation)
        total /= self.noise.expected_examples
        for name, parameter in self.parameters.items():
            parameter.grad = sums[name]

    def of_each(self, inputs: tuple[Tensor, ...], targets: Tensor) -> dict[str, Tensor]:
        """Return the gradient of each example's own loss: (N, ...) for each parameter."""
        parameters = {name: each.detach() for name, each in self.parameters.items()}
        # Copies: what a model counts or measures of examples is no gradient, and has no noise.
        buffers = {name: each.detach().clone() for name, each in self._model.named_buffers()}
        fixed = {name: each.detach() for name, each in self._fixed.items()}
        gradients: dict[str, Tensor] = self._of_each(parameters, buffers | fixed, inputs, targets)
        return gradients

    def _loss_of_one(
        self,
        parameters: dict[str, Tensor],
        others: dict[str, Tensor],
        inputs: tuple[Tensor, ...],
        target: Tensor,
    ) -> Tensor:
        batch = tuple(each.unsqueeze(0) for each in inputs)
        outputs = functional_call(self._model, (parameters, others), batch)
        loss: Tensor = self._loss(outputs, target.unsqueeze(0))
        return loss

    def _add(self, sums: Sums, inputs: tuple[Tensor, ...], targets: Tensor) -> None:
        """Add the examples' clipped gradients to the sums."""
        most = self.noise.max_grad_norm
        if self._layered is not None:
            clipped = self._layered.clipped(inputs, targets, most)
            for name, each in clipped.items():
                sums[name] += each
            return
        gradients = self.of_each(inputs, targets)
        squares = [each.reshape(len(each), -1).square().sum(1) for each in gradients.values()]
        norms = torch.stack(squares).sum(dim=0)
        if (odd := odd_ones(norms.unsqueeze(0))) is not None:
            extra = sum_of_odd(odd, lambda some: {n: e[some] for n, e in gradients.items()}, most)
            for name, each in extra.items():
                sums[name] += each
            gradients = {name: without(each, odd) for name, each in gradients.items()}
            norms = norms.masked_fill(odd, 0.0)
        shares = shares_of(norms, most)
        for name, each in gradients.items():
            sums[name] += torch.einsum("n,n...->...", shares.to(each), each)
