"""Whether the parts of a checkpoint of agents tell of one run."""

from collections.abc import Iterator, Mapping
from typing import Any

from trainops.files.description import StateChecks
from trainops.files.optimizers import steps_taken
from trainops.runtime.job import StateDict


def agent_disagreements(step: int, state: StateDict) -> dict[str, str]:
    """Return what does not fit the rest of a checkpoint of this step, by place."""
    return {
        place: f"is {found}; by the rest of the checkpoint {expected}"
        for place, found, expected in _claims(step, state)
        if found != expected
    }


def _claims(step: int, state: StateDict) -> Iterator[tuple[str, Any, Any]]:
    """Yield a place, what it says, and what it should say."""
    plain: Mapping[str, Any] = state["state"]
    agents, completed = len(state["open_episodes"]["gained"]), len(state["episodes"])
    yield "state.step", plain["step"], step
    yield "state.environment_steps", plain["environment_steps"], step * agents
    yield "replay", len(state["replay"]), step * agents
    yield "state.episodes_completed", plain["episodes_completed"], completed
    yield "state.next_episode", plain["next_episode"], completed
    yield "learning.updates", state["learning"]["updates"], plain["updates"]
    optimizer = state["optimizer"]
    for each in [optimizer] if "state" in optimizer else optimizer.values():  # one, or each agent's
        for steps in steps_taken(each):  # fewer where moments began anew at an import
            yield "optimizer.state", min(steps, plain["updates"]), steps


CHECKS = StateChecks(
    mark="episodes_completed",
    disagreements=agent_disagreements,
    compared="steps, episodes, updates and the replay buffer's length",
)
