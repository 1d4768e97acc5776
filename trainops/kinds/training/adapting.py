"""What a fork of a training changes in the state: what the optimizers remember of the config."""

import torch
from torch import Tensor

from trainops.kinds.training.config import TrainingConfig
from trainops.runtime.job import StateDict


def adapt(state: StateDict, before: TrainingConfig, after: TrainingConfig) -> StateDict:
    """Return the state with the new config's learning rate and weight decay.

    Groups with a learning rate of their own keep their ratio to the others.
    """
    optimizers = [
        {**optimizer, "param_groups": [_group(g, before, after) for g in optimizer["param_groups"]]}
        for optimizer in state["optimizer"]
    ]
    plain = {
        **state["state"],
        "learning_rate": float(optimizers[0]["param_groups"][0]["lr"]),  # may be a tensor
    }
    return state | {"optimizer": optimizers, "state": plain}


def _group(group: StateDict, before: TrainingConfig, after: TrainingConfig) -> StateDict:
    adapted = dict(group)
    if after.learning_rate != before.learning_rate:
        own = group["lr"]
        is_the_configs = own == before.learning_rate
        scaled = own * (after.learning_rate / before.learning_rate)
        rate = after.learning_rate if is_the_configs else scaled
        adapted["lr"] = torch.full_like(own, rate) if isinstance(own, Tensor) else rate
    if group.get("weight_decay") == before.weight_decay:
        adapted["weight_decay"] = after.weight_decay
    return adapted
