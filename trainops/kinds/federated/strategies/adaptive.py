"""Adaptive server optimizers: FedAdagrad, FedAdam, FedYogi.

Reddi et al., "Adaptive federated optimization" (2021), algorithm 2. FedAdam corrects the bias of
its first rounds as Flower does, with the round counted from 1.
"""

import torch
from torch import Tensor

from trainops.kinds.federated.strategies.strategy import FederatedStrategy


class FedAdagrad(FederatedStrategy):
    remembers = ("second_moment",)

    def move(self, parameters: Tensor, update: Tensor, round_number: int) -> Tensor:
        second = self.state["second_moment"] + update.square()
        self.state = {"second_moment": second}
        return parameters + self.config.learning_rate * update / (second.sqrt() + self.config.tau)


class FedAdam(FederatedStrategy):
    remembers = ("first_moment", "second_moment")

    def move(self, parameters: Tensor, update: Tensor, round_number: int) -> Tensor:
        one = self.config.beta_1
        first = one * self.state["first_moment"] + (1 - one) * update
        second = self.second_moment(update.square())
        self.state = {"first_moment": first, "second_moment": second}
        rate = self.config.learning_rate * self.correction(round_number)
        return parameters + rate * first / (second.sqrt() + self.config.tau)

    def second_moment(self, square: Tensor) -> Tensor:
        two = self.config.beta_2
        return two * self.state["second_moment"] + (1 - two) * square

    def correction(self, round_number: int) -> float:
        powers = round_number + 1
        falling: float = (1 - self.config.beta_2**powers) ** 0.5
        return falling / (1 - self.config.beta_1**powers)


class FedYogi(FedAdam):
    def second_moment(self, square: Tensor) -> Tensor:
        before = self.state["second_moment"]
        return before - (1 - self.config.beta_2) * square * torch.sign(before - square)

    def correction(self, round_number: int) -> float:
        return 1.0
