"""Position of a checkpoint of a training loop, from its JSON state. Without torch."""

from collections.abc import Mapping
from typing import Any

from trainops.runtime.position import Position

SUMMARY = ("epoch", "global_step", "metrics", "best_metric")
ALSO_READ = ("place",)
BEST = ("best_metric",)


def position(state: Mapping[str, Any], step: int) -> Position:
    place, epoch = state.get("place"), state.get("epoch")
    counts = {} if epoch is None else {"epoch": epoch}
    return Position(counts, f"{place}, step {step}" if place else f"step {step}")
