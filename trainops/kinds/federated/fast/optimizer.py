"""Clients' optimizers. Each client is a row of a matrix: one by itself, or many at once."""

import torch
from torch import Tensor

from trainops.kinds.federated.options import FederatedOptions
from trainops.runtime.job import StateDict

BETAS, EPSILON = (0.9, 0.999), 1e-8  # torch's defaults


class ClientOptimizer:
    """SGD, Adam or AdamW of torch.optim for rows (C, P), each with moments and steps of its own.

    The first rows may move more often than the last: those clients have more batches.
    """

    def __init__(self, config: FederatedOptions, rows: Tensor) -> None:
        self.config = config
        count = {"sgd": 1 if config.momentum else 0}.get(config.optimizer, 2)
        self.moments = [torch.zeros_like(rows) for _ in range(count)]
        self.steps = torch.zeros(len(rows), 1, dtype=torch.float64, device=rows.device)

    def move(self, rows: Tensor, gradients: Tensor) -> None:
        """Move the first n rows (n, P) in place by their gradients (n, P), which are used up."""
        config, count = self.config, len(rows)
        moments = [each[:count] for each in self.moments]
        if config.optimizer == "adamw":  # its decay is no part of the gradient
            rows.mul_(1 - config.learning_rate * config.weight_decay)
        elif config.weight_decay:
            gradients.add_(rows, alpha=config.weight_decay)
        if config.optimizer == "sgd":
            for momentum in moments:  # one, or none
                gradients = momentum.mul_(config.momentum).add_(gradients)
            rows.add_(gradients, alpha=-config.learning_rate)
        else:
            self._move_by_adam(rows, gradients, *moments)

    def state_dict(self) -> StateDict:
        counted = {} if self.config.optimizer == "sgd" else {"steps": self.steps}
        return {"moments": list(self.moments), **counted}

    def load_state_dict(self, state: StateDict) -> None:
        """Take over what has the same shapes."""
        self.moments = [each.to(self.steps.device, copy=True) for each in state["moments"]]
        if "steps" in state:
            self.steps = state["steps"].to(self.steps.device, copy=True)

    def _move_by_adam(self, rows: Tensor, gradients: Tensor, mean: Tensor, square: Tensor) -> None:
        """Kingma and Ba, "Adam: a method for stochastic optimization" (2015), algorithm 1."""
        one, two = BETAS
        steps = self.steps[: len(rows)].add_(1)  # the same memory
        mean.lerp_(gradients, 1 - one)
        square.mul_(two).addcmul_(gradients, gradients, value=1 - two)
        sizes = (self.config.learning_rate / (1 - one**steps)).to(rows)
        spread = (square.sqrt() / (1 - two**steps).sqrt().to(rows)).add_(EPSILON)
        rows.sub_(sizes * (mean / spread))
