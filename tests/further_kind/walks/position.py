"""Where a checkpoint of walks stands. Without torch."""

from collections.abc import Mapping
from typing import Any

from trainops.runtime.position import Position

SUMMARY = ("stage", "move")
ALSO_READ = ()
BEST = ()


def position(state: Mapping[str, Any], step: int) -> Position:
    if "move" in state:  # a subtask
        return Position({"move": step}, f"move {step}")
    return Position({"stage": step}, f"stage {step}", group=step)
