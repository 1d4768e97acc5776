"""What a fork changes in the state of a reinforcement learning run."""

import torch
from torch import Tensor

from trainops.kinds.rl.config import RlConfig
from trainops.kinds.rl.provenance import IRRELEVANT, provenance_hash
from trainops.kinds.rl.schedules import epsilon
from trainops.runtime.job import StateDict


def adapt(state: StateDict, before: RlConfig, after: RlConfig) -> StateDict:
    """Return the state under the new config: a ring of another capacity keeps its newest rows."""
    plain, learning = state["state"], dict(state["learning"])
    settings = after.model_dump(mode="json", exclude=IRRELEVANT)
    provenance = plain["provenance"] | {
        "config": settings,
        "config_hash": provenance_hash(settings),
    }
    adapted = state | {"state": _schedules(plain, after) | {"provenance": provenance}}
    old, new = learning["capacity"], after.replay.capacity // after.agents * after.agents
    if after.algorithm == "ppo" or old == new:
        return adapted
    count = plain["environment_steps"]
    floor = max(learning["floor"], count - old)
    adapted["learning"] = learning | {"capacity": new, "floor": floor}
    if "priorities" in state:
        adapted["priorities"] = moved_slots(state["priorities"], count, new)
    return adapted


def _schedules(plain: StateDict, after: RlConfig) -> StateDict:
    """Return the plain values with those that schedules of the new config give at this place."""
    at, completed = plain["environment_steps"], plain["episodes_completed"]
    return plain | {"epsilon": epsilon(after.exploration, at, completed)}


def moved_slots(priorities: Tensor, count: int, slots: int) -> Tensor:
    """Return the priorities of the newest rows, in the slots of a ring of another size."""
    kept = min(count, len(priorities), slots)
    rows = torch.arange(count - kept, count)
    moved = torch.zeros(slots, dtype=priorities.dtype)
    moved[rows % slots] = priorities[rows % len(priorities)]
    return moved
