"""Agents that learn for a minute."""

from trainops.kind import Demo
from trainops.kinds.rl.recipes.levels import CORRIDOR

DEMO = Demo(
    name="Down the corridor",
    config={**CORRIDOR.example, "environment_steps": 20_000},
)
