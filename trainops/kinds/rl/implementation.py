"""Selects between `fast/` and `plain.py`; both have equal results on the CPU."""

from collections.abc import Callable
from typing import TypeAlias

from torch import nn

from trainops.kinds.rl import plain
from trainops.kinds.rl.config import RlConfig
from trainops.kinds.rl.fast import following
from trainops.kinds.rl.fast.fused_adam import FusedAdam
from trainops.runtime.implementation import is_plain

Follow: TypeAlias = Callable[[nn.Module, nn.Module, float], None]


def make_adam(network: nn.Module, config: RlConfig) -> plain.PlainAdam:
    """Return the optimizer of a network."""
    return plain.PlainAdam(network, config) if is_plain() else FusedAdam(network, config)


def make_follow() -> Follow:
    """Return what moves a target network towards the one that learns."""
    return plain.follow if is_plain() else following.follow
