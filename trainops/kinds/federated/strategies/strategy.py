"""Federated averaging, and the verbs that other strategies do differently.

McMahan et al., "Communication-efficient learning of deep networks from decentralized data" (2017),
algorithm 1.
"""

import torch
from torch import Tensor

from trainops.kinds.federated.options import ServerConfig


class FederatedStrategy:
    """How clients are held together and how what they send becomes the next model.

    `state` is all that the server remembers between rounds: tensors of the model's size, by name.
    """

    remembers: tuple[str, ...] = ()

    def __init__(self, config: ServerConfig, like: Tensor) -> None:
        self.config = config
        self.state = {name: torch.zeros_like(like) for name in self.remembers}

    def pull(self, gradients: Tensor, parameters: Tensor, anchor: Tensor) -> None:
        """Change clients' gradients (..., P) by what they are away from the server's model (P,)."""

    def combine(self, updates: Tensor, weights: Tensor) -> Tensor:
        """Return one update (P,) of those of all clients (K, P), who have N examples (K,)."""
        shares = (weights / weights.sum()).to(updates)
        return shares @ updates

    def move(self, parameters: Tensor, update: Tensor, round_number: int) -> Tensor:
        """Return the server's next parameters (P,); rounds count from 1."""
        return parameters + self.config.learning_rate * update
