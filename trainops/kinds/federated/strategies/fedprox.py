"""FedProx: clients are held near the server's model.

Li et al., "Federated optimization in heterogeneous networks" (2020), equation 2.
"""

from torch import Tensor

from trainops.kinds.federated.strategies.strategy import FederatedStrategy


class FedProx(FederatedStrategy):
    def pull(self, gradients: Tensor, parameters: Tensor, anchor: Tensor) -> None:
        gradients.add_(parameters - anchor, alpha=self.config.proximal)
