"""How weights are moved: by Adam, the gradients clipped by their norm.

Networks of agents are small: torch.optim and clip_grad_norm_ take longer to find out what is to be
done than to do it. Here it is found out once, and done by the kernels that they use.
"""

import torch
from torch import Tensor, nn

from trainops.kinds.rl.config import RlConfig
from trainops.kinds.rl.plain import PlainAdam
from trainops.runtime.job import StateDict


class FusedAdam(PlainAdam):
    """torch.optim.Adam and clip_grad_norm_ of one network, bit for bit; the state is Adam's."""

    def __init__(self, network: nn.Module, config: RlConfig) -> None:
        super().__init__(network, config)
        self._find_moments()

    def move(self, loss: Tensor, step: int) -> None:
        """Move the weights as PlainAdam does."""
        self._require_finite(loss, step)
        gradients = torch.autograd.grad(loss, self.parameters)
        with torch.no_grad():
            if self.max_norm is not None:
                norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
                torch._foreach_mul_(gradients, (self.max_norm / (norm + 1e-6)).clamp(max=1.0))
            self._step(gradients)

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        self._find_moments()

    def _step(self, gradients: tuple[Tensor, ...]) -> None:
        (group,) = self._adam.param_groups
        one, two = group["betas"]
        torch._foreach_add_(self._steps, 1)
        torch._fused_adam_(
            self.parameters, gradients, self._means, self._squares, [], self._steps,
            lr=group["lr"], beta1=one, beta2=two, eps=group["eps"], weight_decay=0.0,
            amsgrad=False, maximize=False,
        )  # fmt: skip

    def _find_moments(self) -> None:
        """Look up what is kept for each parameter. What was never moved has moments of zero."""
        kept = [self._adam.state[each] for each in self.parameters]
        for each, state in zip(self.parameters, kept, strict=True):
            if not state:
                state["step"] = torch.zeros((), device=each.device)
                state["exp_avg"] = torch.zeros_like(each)
                state["exp_avg_sq"] = torch.zeros_like(each)
        self._steps = [each["step"] for each in kept]
        self._means = [each["exp_avg"] for each in kept]
        self._squares = [each["exp_avg_sq"] for each in kept]
