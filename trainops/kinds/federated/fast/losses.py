"""What each example's own loss is, and how it changes with the outputs."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import grad_and_value, vmap

from trainops.kinds.federated.plain import Losses
from trainops.learning.ingredients import Loss

aten = torch.ops.aten
IGNORED = -100  # the target that torch's cross entropy leaves out


def losses_of(loss: Loss) -> Losses:
    """Return what gives each example's own loss, of one that is a mean over a batch."""
    of_each = vmap(grad_and_value(_of_one(loss)))
    is_cross_entropy = loss is nn.functional.cross_entropy

    def losses(outputs: Tensor, targets: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
        is_of_classes = outputs.ndim == 3 and targets.ndim == 2 and not targets.is_floating_point()
        if is_cross_entropy and is_of_classes:
            return _of_classes(outputs, targets, shares)
        gradients, values = of_each(outputs.flatten(0, 1), targets.flatten(0, 1))
        gradients *= shares.reshape(-1, *[1] * (gradients.ndim - 1))
        return values.view_as(shares), gradients.view_as(outputs)

    return losses


def _of_classes(outputs: Tensor, targets: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """Return cross entropy and its gradients by kernels that autograd would call.

    Those of images: they go along a class through all examples, and are five times as fast as
    those that go along an example through its few classes.
    """
    likely = outputs.mT.log_softmax(dim=1)  # (n, classes, B)
    images, truth = likely.unsqueeze(3), targets.unsqueeze(2)
    losses, total = aten.nll_loss2d_forward(images, truth, None, 0, IGNORED)
    back = aten.nll_loss2d_backward(shares.unsqueeze(2), images, truth, None, 0, IGNORED, total)
    back = aten._log_softmax_backward_data(back.squeeze(3), likely, 1, likely.dtype)
    return losses.squeeze(2), back.mT


def _of_one(loss: Loss) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the loss of a single example, of its own outputs and target."""

    def of_one(output: Tensor, target: Tensor) -> Tensor:
        value: Tensor = loss(output.unsqueeze(0), target.unsqueeze(0))
        return value

    return of_one
