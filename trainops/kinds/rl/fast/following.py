"""A target network that follows another: one call for all parameters."""

import torch
from torch import Tensor, nn


@torch.no_grad()
def follow(target: nn.Module, online: nn.Module, tau: float) -> None:
    """Move the target's weights as trainops.kinds.rl.plain.follow does."""
    theirs: list[Tensor] = list(online.parameters())
    own: list[Tensor] = list(target.parameters())
    if tau == 1:
        torch._foreach_copy_(own, theirs)
    else:
        torch._foreach_lerp_(own, theirs, tau)
