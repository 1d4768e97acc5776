"""FedProx: clients are held near the server's model.

Li et al., "Federated optimization in heterogeneous networks" (2020), equation 2.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from trainops.engines.federated.strategies.strategy import Strategy


class FedProx(Strategy):
    def pull(self, parameters: Sequence[Tensor], anchors: Sequence[Tensor]) -> None:
        with torch.no_grad():
            for each, anchor in zip(parameters, anchors, strict=True):
                if each.grad is not None:
                    each.grad.add_(each - anchor, alpha=self.config.proximal)
