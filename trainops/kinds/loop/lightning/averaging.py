"""Gradients of manual optimization, averaged over the ranks after each manual_backward."""

from functools import partial

import torch
from torch import Tensor, distributed, nn

from trainops.kinds.loop.replicas import Reductions
from trainops.runtime.errors import InputError


class Averaging:
    """Averages what a backward pass has added to, as DistributedDataParallel does.

    A training step may call manual_backward any number of times, which the forward pass of
    DistributedDataParallel cannot follow.
    """

    def __init__(self, module: nn.Module, reductions: Reductions) -> None:
        self._reductions = reductions
        named = module.named_parameters()
        self._trained = {name: each for name, each in named if each.requires_grad}
        self._changed: dict[str, None] = {}  # by a backward pass, and not averaged since
        if reductions.num_ranks > 1:
            for name, each in self._trained.items():
                each.register_post_accumulate_grad_hook(partial(self._note, name))

    def average(self) -> None:
        """Average the gradients that changed in one rank at least; a rank may lack some."""
        if self._reductions.num_ranks == 1:
            return
        changed = self._reductions.any([name in self._changed for name in self._trained])
        self._changed.clear()
        pairs = zip(self._trained.items(), changed, strict=True)
        for name, parameter in [pair for pair, is_changed in pairs if is_changed]:
            self._average(name, parameter)

    def require_averaged(self) -> None:
        """Raise InputError where an optimizer would step with the gradients of one rank."""
        if self._changed:
            name = min(self._changed)
            problem = f"the gradient of {name} is not averaged over the ranks"
            raise InputError({"recipe": f"{problem}; allowed: self.manual_backward(loss)"})

    @torch.no_grad()
    def _average(self, name: str, parameter: nn.Parameter) -> None:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        if parameter.grad.is_sparse:
            problem = f"the gradient of {name} is sparse"
            raise InputError({"processes": f"{problem}, with manual optimization; allowed: 1"})
        shared = parameter.grad.contiguous()
        shared.mul_(1 / self._reductions.num_ranks)
        distributed.all_reduce(shared)
        parameter.grad.copy_(shared)

    def _note(self, name: str, _: Tensor) -> None:
        self._changed[name] = None
