"""The optimizer and the target network of agents in plain PyTorch: what `fast/` does, bit for bit.

TRAINOPS_PLAIN=1 selects this module (trainops/kinds/rl/implementation.py).
"""

import math

import torch
from torch import Tensor, nn

from trainops.kinds.rl.config import RlConfig
from trainops.runtime.errors import IncompatibleState, NonFiniteLoss
from trainops.runtime.job import StateDict


class PlainAdam:
    """torch.optim.Adam and clip_grad_norm_ of one network."""

    def __init__(self, network: nn.Module, config: RlConfig) -> None:
        self.parameters: list[Tensor] = list(network.parameters())
        self.is_on_cpu = self.parameters[0].device.type == "cpu"
        self.max_norm = config.max_grad_norm
        # torch's public switch to the kernel that fast/fused_adam.py calls directly.
        self._adam = torch.optim.Adam(self.parameters, lr=config.learning_rate, fused=True)

    def set_rate(self, rate: float) -> None:
        """Set the learning rate."""
        self._adam.param_groups[0]["lr"] = rate

    def move(self, loss: Tensor, step: int) -> None:
        """Move the weights against the gradients of a loss.

        Raises NonFiniteLoss: on the CPU before anything moves; elsewhere a look would cost a wait.
        """
        self._require_finite(loss, step)
        self._adam.zero_grad()
        loss.backward()
        if self.max_norm is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.max_norm)
        self._adam.step()
        self._adam.zero_grad()

    def state_dict(self) -> StateDict:
        """Return what torch.optim.Adam would."""
        return self._adam.state_dict()

    def load_state_dict(self, state: StateDict) -> None:
        """Take over a state of Adam. Raises IncompatibleState for moments of other shapes."""
        for index, moments in state["state"].items():
            shape = tuple(moments["exp_avg"].shape) if index < len(self.parameters) else None
            if shape is None or shape != tuple(self.parameters[index].shape):
                raise IncompatibleState(f"the optimizer's moments of parameter {index} are {shape}")
        self._adam.load_state_dict(state)

    def _require_finite(self, loss: Tensor, step: int) -> None:
        if self.is_on_cpu and not math.isfinite(value := loss.item()):
            raise NonFiniteLoss(step, value)


@torch.no_grad()
def follow(target: nn.Module, online: nn.Module, tau: float) -> None:
    """Move the target's weights by a share of the way; 1 copies them."""
    for own, theirs in zip(target.parameters(), online.parameters(), strict=True):
        if tau == 1:
            own.copy_(theirs)
        else:
            own.lerp_(theirs, tau)
