"""The module of `tests.ranks.replicas`. The variable FAULT of the environment disturbs it.

"stop 0 5": at the fifth batch of training; "stop 0 -2": at the second batch of a validation.
"""

import torch

from tests.loop.pair_module import Pair
from tests.ranks.together_loop import disturb
from trainops.kinds.loop.module import module_loop


class Replica(Pair):
    def __init__(self, run, parameters):
        super().__init__(run, parameters)
        self.rank = run.rank
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("validated", torch.zeros((), dtype=torch.int64))

    def training_step(self, batch, optimizer="body"):
        if optimizer == "body":
            self.calls += 1
            disturb(self.rank, int(self.calls), self.body)
        return super().training_step(batch, optimizer)

    def validation_step(self, batch):
        self.validated += 1
        disturb(self.rank, -int(self.validated), self.body)
        return super().validation_step(batch)


train = module_loop(Replica)
