"""One agent of a population with separate networks, as a population of its own.

A file of version 3 has one network, so it can hold one of them.
"""

from typing import Any

from trainops.kinds.rl.config import RlConfig
from trainops.kinds.rl.learners.separate import state_of
from trainops.kinds.rl.replay import stream_of
from trainops.runtime.errors import IncompatibleState
from trainops.runtime.job import StateDict


def only(state: StateDict, config: RlConfig, agent: int | None) -> tuple[StateDict, RlConfig]:
    """Return what a run of this agent alone would have; without `agent`, of the best evaluated.

    Where all share one network there is nothing to choose. Raises IncompatibleState.
    """
    if not config.is_separate:
        if agent is not None:
            raise IncompatibleState(
                "agent is only allowed with separate networks; here all agents share one"
            )
        return state, config
    chosen = _best(state) if agent is None else agent
    if chosen >= config.agents:
        raise IncompatibleState(f"agent is {chosen}; allowed: 0 to {config.agents - 1}")
    own = state_of(state, chosen, config.agents)
    learning, agents = state["learning"], config.agents
    own["learning"] = own["learning"] | {
        "capacity": learning["capacity"] // agents,
        "floor": learning["floor"] // agents,
        "breaks": [row // agents for row in learning["breaks"] if row % agents == chosen],
    }
    size = min(len(state["replay"]) - learning["floor"], learning["capacity"])
    rows = state["replay"].column("transition")
    rows = rows[len(rows) - size :][chosen::agents]
    parts = {
        "state": _plain(state, chosen, own["learning"]["updates"]),
        "replay": stream_of(rows, len(state["replay"]) // agents),
        "novelty": state.get("novelty", {}).get(str(chosen)),
        "environment": _rows_of(state["environment"], chosen),
        "open_episodes": _rows_of(state["open_episodes"], chosen),
    }
    return own | parts, config.model_copy(update={"agents": 1})


def _best(state: StateDict) -> int:
    return int(state["state"]["evaluations"].get("newest", {}).get("agent", 0))


def _plain(state: StateDict, agent: int, updates: int) -> dict[str, Any]:
    plain: dict[str, Any] = state["state"]
    stages = plain["stages"]
    return plain | {
        "environment_steps": plain["step"],
        "episodes_completed": plain["agents"][agent]["episodes"],
        "updates": updates,
        "stages": stages[agent : agent + 1],
    }


def _rows_of(part: StateDict, agent: int) -> StateDict:
    """Return what of a part a file tells: one row of what has a row for each agent."""
    names = ("layout", "depletion", "gained", "lengths")
    return {name: part[name][agent : agent + 1] for name in names if name in part}
