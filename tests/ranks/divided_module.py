"""The training module of `tests.ranks.divided_modules`, disturbed by FAULT as `replicas` is."""

import torch
from torch import nn

from tests.ranks.divided_loop import Net
from tests.ranks.replicas_module import Replica
from trainops.kinds.loop.module import module_loop


class Divided(Replica):
    """Blocks in a ModuleList between layers that are divided together."""

    def __init__(self, run, parameters):
        super().__init__(run, parameters)
        self.body = nn.Sequential(nn.Linear(2, 6), Net(), nn.Dropout(0.2), nn.Linear(2, 4))

    def optimizers(self):
        if self.settings.optimizers == 1:
            return (
                super().optimizers()
                if self.settings.optimizer.name == "LBFGS"
                else (torch.optim.AdamW(self.parameters(), 0.05))
            )
        return {
            "body": torch.optim.AdamW(self.body.parameters(), 0.05),
            "head": torch.optim.SGD(self.head.parameters(), 0.05, momentum=0.9),
        }


train = module_loop(Divided)
