"""Selects between `fast/` and `plain.py`, whose results differ in their last bits."""

from collections.abc import Callable

from torch import Tensor, nn

from trainops.kinds.federated import plain
from trainops.kinds.federated.fast import losses, vectorised_mlp
from trainops.kinds.federated.fast.ghost_clipping import GhostClippedSums, can_sum
from trainops.kinds.federated.fast.optimizer import ClientOptimizer
from trainops.kinds.federated.options import FederatedOptions
from trainops.kinds.federated.parameter_layout import ParameterLayout
from trainops.learning.ingredients import Loss
from trainops.runtime.implementation import is_plain


def make_optimizer(config: FederatedOptions, rows: Tensor) -> ClientOptimizer:
    """Return the optimizer of clients' rows (C, P)."""
    chosen = plain.PlainClientOptimizer if is_plain() else ClientOptimizer
    return chosen(config, rows)


def many_models(layout: ParameterLayout) -> Callable[[Tensor], plain.Models]:
    """Return what makes n models of rows (n, P). Raises ValueError as the selected one does."""
    return plain.many_models(layout) if is_plain() else vectorised_mlp.many_models(layout)


def losses_of(loss: Loss) -> plain.Losses:
    """Return what gives each example's own loss, of one that is a mean over a batch."""
    return plain.losses_of(loss) if is_plain() else losses.losses_of(loss)


def ghost_clipped_sums(model: nn.Module, loss: Loss) -> GhostClippedSums | None:
    """Return ghost clipping; None where torch.func takes every example's own gradient."""
    return GhostClippedSums(model, loss) if can_sum(model) and not is_plain() else None
