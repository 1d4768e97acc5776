"""FedAvgM: the server's step has momentum.

Hsu, Qi and Brown, "Measuring the effects of non-identical data distribution" (2019), section 4.
"""

from torch import Tensor

from trainops.kinds.federated.strategies.strategy import FederatedStrategy


class FedAvgM(FederatedStrategy):
    remembers = ("momentum",)

    def move(self, parameters: Tensor, update: Tensor, round_number: int) -> Tensor:
        self.state = {"momentum": self.config.momentum * self.state["momentum"] + update}
        return parameters + self.config.learning_rate * self.state["momentum"]
