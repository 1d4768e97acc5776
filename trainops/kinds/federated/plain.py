"""What `fast/` does, in plain PyTorch: loops over clients and examples, autograd and torch.optim.

TRAINOPS_PLAIN=1 selects this module (trainops/kinds/federated/implementation.py). Results agree but
for the last bits, since sums are taken in another order, and dropout draws other masks.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor
from torch.func import functional_call
from torch.optim import SGD, Adam, AdamW, Optimizer

from trainops.kinds.federated.fast.optimizer import ClientOptimizer
from trainops.kinds.federated.options import FederatedOptions
from trainops.kinds.federated.parameter_layout import ParameterLayout
from trainops.learning.ingredients import Loss

# From cotangents (n, B, ...) of the outputs to gradients (n, P).
Pull: TypeAlias = Callable[[Tensor], Tensor]
# From inputs (n, B, ...) to the outputs (n, B, ...), and the way back.
Models: TypeAlias = Callable[[tuple[Tensor, ...]], tuple[Tensor, Pull]]
# From outputs (n, B, ...), targets (n, B, ...) and shares (n, B) to each example's loss (n, B), and
# the gradient by the outputs of the sum of all losses' shares.
Losses: TypeAlias = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


class PlainClientOptimizer(ClientOptimizer):
    """torch.optim for one row after the other; the state is that of the fast optimizer."""

    def move(self, rows: Tensor, gradients: Tensor) -> None:
        """Move the first n rows (n, P) in place by their gradients (n, P)."""
        for place, gradient in enumerate(gradients):
            row = rows[place]
            row.grad = gradient
            optimizer = _torchs(self.config, row)
            optimizer.state[row] = self._state_of(place)
            optimizer.step()

    def _state_of(self, place: int) -> dict[str, Tensor]:
        """Return what torch's optimizer keeps of a row, as views that it updates in place."""
        moments = [each[place] for each in self.moments]
        if self.config.optimizer == "sgd":
            return dict(zip(["momentum_buffer"], moments, strict=False))  # one, or none
        mean, square = moments
        return {"step": self.steps[place, 0], "exp_avg": mean, "exp_avg_sq": square}


def many_models(layout: ParameterLayout) -> Callable[[Tensor], Models]:
    """Return what makes n models of rows (n, P), which are called one after the other."""
    return lambda rows: partial(_call_each, layout, rows)


def losses_of(loss: Loss) -> Losses:
    """Return what gives each example's own loss, of one that is a mean over a batch."""

    def losses(outputs: Tensor, targets: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
        given = outputs.detach().requires_grad_()
        with torch.enable_grad():
            examples = zip(given.flatten(0, 1), targets.flatten(0, 1), strict=True)
            found = torch.stack([loss(o.unsqueeze(0), t.unsqueeze(0)) for o, t in examples])
            (gradients,) = torch.autograd.grad(found, given, shares.flatten())
        return found.detach().view_as(shares), gradients

    return losses


def _call_each(
    layout: ParameterLayout, rows: Tensor, inputs: tuple[Tensor, ...]
) -> tuple[Tensor, Pull]:
    """Return the outputs of each model for its own inputs, and the way back."""
    given = rows.detach().requires_grad_()
    with torch.enable_grad():
        pieces = layout.pieces(given)
        outputs = torch.stack(
            [
                functional_call(
                    layout.model,
                    {name: each[place] for name, each in zip(layout.names, pieces, strict=True)},
                    tuple(each[place] for each in inputs),
                )
                for place in range(len(rows))
            ]
        )

    def pull(cotangents: Tensor) -> Tensor:
        (gradients,) = torch.autograd.grad(outputs, given, cotangents)
        return gradients

    return outputs.detach(), pull


def _torchs(config: FederatedOptions, row: Tensor) -> Optimizer:
    """Return torch's optimizer of one row, in its loop over tensors."""
    rate, decay = config.learning_rate, config.weight_decay
    match config.optimizer:
        case "sgd":
            return SGD([row], rate, config.momentum, weight_decay=decay, foreach=False)
        case "adam":
            return Adam([row], rate, weight_decay=decay, foreach=False)
        case "adamw":
            return AdamW([row], rate, weight_decay=decay, foreach=False)
