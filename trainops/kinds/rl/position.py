"""Where a checkpoint of reinforcement learning stands. Without torch."""

from collections.abc import Mapping
from typing import Any

from trainops.runtime.position import Position, completed

SUMMARY = ("episodes_completed", "environment_steps", "epsilon", "updates", "stages")
ALSO_READ = ()
BEST = ("evaluations", "best", "return")


def position(state: Mapping[str, Any], step: int) -> Position:
    episode = state.get("episodes_completed")
    if episode is None:
        return Position({}, f"step {step}")
    return Position({"episode": episode}, f"{completed('episode', episode)}, step {step}")
