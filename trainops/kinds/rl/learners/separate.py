"""A network for each agent: what one learns, no other knows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from trainops.kinds.rl.config import RlConfig
from trainops.kinds.rl.environment import Space
from trainops.kinds.rl.learners.dqn import DqnLearner
from trainops.kinds.rl.learners.learner import Learner, Player
from trainops.kinds.rl.learners.ppo import PpoLearner
from trainops.kinds.rl.learners.recurrent import RecurrentLearner
from trainops.kinds.rl.replay import Lane, Replay, Ring
from trainops.kinds.rl.seeds import seed_for
from trainops.runtime.errors import IncompatibleState
from trainops.runtime.job import StateDict

LEARNERS: Mapping[str, Callable[[RlConfig, Space, torch.device, Ring], Learner]] = {
    "dqn": DqnLearner,
    "recurrent_dqn": RecurrentLearner,
    "ppo": PpoLearner,
}


def make_learner(config: RlConfig, space: Space, device: torch.device, ring: Replay) -> Learner:
    """Return the learner of all agents, whatever number of networks they have."""
    make = LEARNERS[config.algorithm]
    if not config.is_separate:
        return make(config, space, device, ring)
    return SeparateLearners(
        [
            make(alone(config, agent), space, device, Lane(ring, agent))
            for agent in range(config.agents)
        ]
    )


def alone(config: RlConfig, agent: int) -> RlConfig:
    """Return the config as one agent of its own has it: streams of its own, the same schedules."""
    replay = config.replay.model_copy(update={"capacity": config.ring_capacity // config.agents})
    return config.model_copy(
        update={
            "agents": 1,
            "seed": seed_for(config.seed, f"agent {agent}"),
            "environment_steps": config.vector_steps * config.agents,
            "replay": replay,
        }
    )


class SeparateLearners:
    """A learner for each agent, one after the other, each with its own rows of the ring.

    Their parts of the state lie together, as those of shared networks do: weights with the agent's
    number in front, priorities side by side as the rows are, memories agent by agent.
    """

    def __init__(self, learners: Sequence[Learner]) -> None:
        self.learners = list(learners)

    @property
    def updates(self) -> int:
        return sum(each.updates for each in self.learners)

    def act(self, observations: Tensor, masks: Tensor | None, epsilon: float) -> Tensor:
        inputs = zip(self.learners, observations.split(1), self._split(masks), strict=True)
        return torch.cat([each.act(seen, can, epsilon) for each, seen, can in inputs])

    def recorded(self, taken: slice) -> None:
        slot = taken.start // len(self.learners)
        for each in self.learners:
            each.recorded(slice(slot, slot + 1))

    def restarted(self, which: Sequence[int]) -> None:
        for agent in which:
            self.learners[agent].restarted([0])

    def learn(self, step: int, environment_steps: int, novelty_weight: float) -> list[Tensor]:
        return [
            loss
            for each in self.learners
            for loss in each.learn(step, environment_steps, novelty_weight)
        ]

    def recent_observations(self) -> list[Tensor]:
        return [seen for each in self.learners for seen in each.recent_observations()]

    def players(self, count: int) -> list[Player]:
        return [player for each in self.learners for player in each.players(count)]

    def state_dict(self) -> StateDict:
        parts = [each.state_dict() for each in self.learners]
        return {name: together(name, [part[name] for part in parts]) for name in parts[0]}

    def load_state_dict(self, state: StateDict) -> None:
        """Take over. Raises IncompatibleState."""
        num_updates, agents = state["learning"]["updates"], state["learning"]["agents"]
        if num_updates != (made := sum(each["updates"] for each in agents.values())):
            raise IncompatibleState(f"the state has {num_updates} updates, its agents made {made}")
        for agent, each in enumerate(self.learners):
            each.load_state_dict(state_of(state, agent, len(self.learners)))

    def _split(self, masks: Tensor | None) -> Sequence[Tensor | None]:
        return [None] * len(self.learners) if masks is None else masks.split(1)


def together(name: str, parts: Sequence[Any]) -> Any:
    """Return one part of the state, of the parts of this name that the agents have."""
    if name in ("model", "target"):
        return {f"{n}.{key}": value for n, part in enumerate(parts) for key, value in part.items()}
    if name == "priorities":
        return torch.stack(list(parts), dim=1).flatten()
    if name == "memory":
        return {key: torch.cat([part[key] for part in parts], dim=1) for key in parts[0]}
    found = {str(agent): part for agent, part in enumerate(parts)}
    if name == "learning":
        return {"updates": sum(part["updates"] for part in parts), "agents": found}
    return found


def state_of(state: StateDict, agent: int, agents: int) -> StateDict:
    """Return one agent's parts of a learner's state: `together`, undone."""
    found: StateDict = {
        "optimizer": state["optimizer"][str(agent)],
        "learning": state["learning"]["agents"][str(agent)],
    }
    for name in ("model", "target", "best_model"):
        if name in state:
            found[name] = weights_of(state[name], agent)
    if "priorities" in state:
        found["priorities"] = state["priorities"].view(-1, agents)[:, agent].clone()
    if "memory" in state:
        memory = state["memory"]
        found["memory"] = {key: each[:, agent : agent + 1] for key, each in memory.items()}
    return found


def weights_of(weights: Mapping[str, Tensor], agent: int) -> dict[str, Tensor]:
    """Return the weights of one agent's network, by their own names."""
    front = f"{agent}."
    return {
        name.removeprefix(front): each for name, each in weights.items() if name.startswith(front)
    }
