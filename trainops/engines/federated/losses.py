"""What each example's own loss is, and how it changes with the outputs."""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.func import grad_and_value, vmap

from trainops.engines.training.ingredients import Loss

# From outputs (N, ...), targets (N, ...) and shares (N,) to each example's loss (N,), and the
# gradient by the outputs of the sum of all losses' shares.
Losses: TypeAlias = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]

aten = torch.ops.aten
IGNORED = -100  # the target that torch's cross entropy leaves out


def losses_of(loss: Loss) -> Losses:
    """Return what gives each example's own loss, of one that is a mean over a batch."""
    of_each = vmap(grad_and_value(_of_one(loss)))
    is_cross_entropy = loss is nn.functional.cross_entropy

    def losses(outputs: Tensor, targets: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
        is_of_classes = outputs.ndim == 2 and targets.ndim == 1 and not targets.is_floating_point()
        if is_cross_entropy and is_of_classes:
            return _of_classes(outputs, targets, shares)
        gradients, told = of_each(outputs, targets)
        return told, gradients * shares.view(-1, *[1] * (gradients.ndim - 1))

    return losses


def _of_classes(outputs: Tensor, targets: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """Return cross entropy and its gradients by the kernels that autograd would call."""
    likely = outputs.log_softmax(dim=1)
    losses, total = aten.nll_loss_forward(likely, targets, None, 0, IGNORED)
    back = aten.nll_loss_backward(shares, likely, targets, None, 0, IGNORED, total)
    return losses, aten._log_softmax_backward_data(back, likely, 1, likely.dtype)


def _of_one(loss: Loss) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the loss of a single example, of its own outputs and target."""

    def of_one(output: Tensor, target: Tensor) -> Tensor:
        value: Tensor = loss(output.unsqueeze(0), target.unsqueeze(0))
        return value

    return of_one
