"""The Trainers of `tests.ranks.hugging`. The variable FAULT of the environment disturbs them.

"stop 0 5": at the fifth batch of training; "stop 0 -2": at the second batch of an evaluation.
"""

import torch
from transformers import Trainer

from tests.loop.hugging_trainer import make
from tests.ranks.together_loop import disturb


class Disturbed(Trainer):
    """Counts batches in buffers of the model, and is disturbed."""

    rank = 0

    def training_step(self, model, inputs, num_items_in_batch=None):
        self.model.trained += 1
        disturb(self.rank, int(self.model.trained), self.model)
        return super().training_step(model, inputs, num_items_in_batch)

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        self.model.evaluated += 1
        disturb(self.rank, -int(self.model.evaluated), self.model)
        return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)


def make_disturbed(run, parameters):
    trainer = make(run, parameters)
    trainer.__class__, trainer.rank = Disturbed, run.rank
    trainer.model_accepts_loss_kwargs &= parameters.counts_items
    for name in ("trained", "evaluated"):
        trainer.model.register_buffer(name, torch.zeros((), dtype=torch.int64))
    return trainer


def train(run, parameters):
    from trainops.kinds.loop.transformers import transformers_loop

    loop = transformers_loop(make_disturbed, shards_itself=parameters.shards_itself)
    yield from loop(run, parameters)
