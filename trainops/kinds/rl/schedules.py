"""Quantities that change over a run: functions of how far it is, never counted on their own.

So none is ever moved twice, whatever a resume repeats.
"""

from trainops.kinds.rl.config import ExplorationConfig


def linear(start: float, end: float, over: int, at: int) -> float:
    """Return the value at a step of a line from start to end, flat after that."""
    return start + (end - start) * min(1.0, at / over)


def epsilon(config: ExplorationConfig, environment_steps: int, episodes_completed: int) -> float:
    if config.schedule == "linear":
        return linear(config.start, config.end, config.steps, environment_steps)
    lowest = min(config.start, config.end)
    return max(lowest, float(config.start * config.decay**episodes_completed))
