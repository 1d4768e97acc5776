"""Our checkpoint of agents as a file of reinforcement learning, version 3."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainops.engines.job import StateDict
from trainops.engines.rl.config import RlConfig
from trainops.engines.rl.environment import BuildContext, Space
from trainops.engines.rl.replay import Batch, Layout
from trainops.formats.replay import PlainReplay, PrioritizedReplay, Replay, SequentialReplay
from trainops.formats.rl import AffordanceLayout, Population, RlFile, Substrate
from trainops.formats.rl_agent import only

OPEN = ("observations", "actions", "rewards", "dones")
CLOSED = ("observations", "actions", "rewards_extrinsic", "rewards_intrinsic", "dones")


def export_rl(
    state: StateDict, config: RlConfig, *, saved_at: float, agent: int | None = None
) -> RlFile:
    """Return the file for a checkpoint's parts. `saved_at` is Unix time.

    With separate networks it is of one agent; the one that was evaluated best, if none is named.
    What the format has no place for stays behind: random streams, the environments' own state, the
    log of episodes and the best network. Raises IncompatibleState for an agent that is not there.
    """
    state, config = only(state, config, agent)
    plain, space = state["state"], space_of(config)
    provenance = plain["provenance"]
    stages = torch.tensor(plain["stages"] or [0] * config.agents)
    zeros = torch.zeros(config.agents)
    return RlFile(
        episode=plain["episodes_completed"],
        timestamp=saved_at,
        substrate=Substrate(foreign_substrate(space), space.position_dim),
        population=_population(state, config, space),
        curriculum={
            "agent_stages": stages,
            "episode_rewards": state["open_episodes"]["gained"].float(),
            "episode_steps": state["open_episodes"]["lengths"].float(),
            "prev_avg_reward": zeros,
            "steps_at_stage": zeros.clone(),
            "depletion_multiplier": state["environment"]["depletion"],
        },
        affordances=_affordances(state, space),
        agent_ids=tuple(f"agent_{number}" for number in range(config.agents)),
        epsilon=plain["epsilon"],
        training_config=provenance["config"],
        config_dir=f"configs/{config.recipe}",
        config_hash=provenance["config_hash"],
        observation_dim=space.observation_dim,
        action_dim=len(space.actions),
        meter_count=len(space.meters),
        observation_field_uuids=space.known_as,
    )


def space_of(config: RlConfig) -> Space:
    recipe = config.find_recipe()
    parameters = recipe.parse_parameters(config.parameters)
    space: Space = recipe.builder()(parameters, BuildContext(config.seed)).space
    return space


def foreign_substrate(space: Space) -> str:
    """Return the kind of space as the other tool calls it: "Grid2DSubstrate"."""
    is_of_gymnasium = space.substrate.startswith("gymnasium:")
    return space.substrate if is_of_gymnasium else f"{space.substrate}Substrate"


def _population(state: StateDict, config: RlConfig, space: Space) -> Population:
    plain = state["state"]
    held = _Held(state, config, space)
    return Population(
        q_network=state["model"],
        target_network=state.get("target"),
        optimizer=state["optimizer"],
        replay=held.replay(),
        total_steps=plain["environment_steps"],
        training_step_counter=plain["updates"],
        exploration={"epsilon": plain["epsilon"], "novelty": state.get("novelty")},
        universe={
            "meter_count": len(space.meters),
            "meter_names": list(space.meters),
            "version": "1.0",
            "obs_dim": space.observation_dim,
            "action_dim": len(space.actions),
        },
        current_episodes=held.open_episodes() if "memory" in state else None,
        hidden_states=state.get("memory"),
        epsilon=plain["epsilon"],
    )


class _Held:
    """The ring's transitions, the oldest first, and how they are laid out for the other tool."""

    def __init__(self, state: StateDict, config: RlConfig, space: Space) -> None:
        self.state, self.agents = state, config.agents
        self.prioritized = config.replay
        learning = state["learning"]
        self.capacity: int = learning["capacity"]
        self.count = len(state["replay"])
        self.size = min(self.count - learning["floor"], self.capacity)
        rows = state["replay"].column("transition")
        self.rows = rows[len(rows) - self.size :]
        self.layout = Layout(space)

    def replay(self) -> Replay:
        if "memory" in self.state:
            closed = tuple(
                {name: episode[name] for name in CLOSED}
                for episode, is_open in self._episodes()
                if not is_open
            )
            return SequentialReplay(closed, self.capacity)
        slots = self._by_slot(self.rows)
        batch = self.layout.batch(slots)
        if "priorities" in self.state:
            return PrioritizedReplay(
                size=self.size, position=self.count, capacity=self.capacity,
                transitions=_renamed(_transitions(batch)) if self.size else {},
                priorities=self.state["priorities"].float().numpy().astype(np.float32),
                max_priority=self.state["learning"]["largest_priority"],
                alpha=self.prioritized.alpha, beta=self.prioritized.beta, beta_annealing=True,
            )  # fmt: skip
        transitions = _transitions(batch) if self.size else {}
        return PlainReplay(self.size, self.count, self.capacity, transitions)

    def open_episodes(self) -> tuple[Mapping[str, Any], ...]:
        """Return what each agent did in the episode that is not over yet."""
        found = {int(each["agent"][0]): each for each, is_open in self._episodes() if is_open}
        nothing = self.layout.batch(self.rows[:0])
        empty = _episode(nothing, 0) | {"rewards": nothing.rewards}
        return tuple(
            {name: found.get(agent, empty)[name] for name in OPEN} | {"hidden_states": None}
            for agent in range(self.agents)
        )

    def _by_slot(self, rows: Tensor) -> Tensor:
        """Return the rows in the order of their slots, as a ring holds them."""
        return rows.roll(self.count % self.capacity, 0) if self.size == self.capacity else rows

    def _episodes(self) -> Iterator[tuple[dict[str, Tensor], bool]]:
        """Yield each agent's episodes, and whether one is still open."""
        if not self.size:
            return
        for agent in range(self.agents):
            batch = self.layout.batch(self.rows[agent :: self.agents])
            ends = (batch.terminated | batch.truncated).nonzero().flatten().tolist()
            start, total = 0, len(batch.rewards)
            for end in [*(each + 1 for each in ends), total]:
                if start < end:
                    part = Batch(*(None if x is None else x[start:end] for x in batch))  # type: ignore[arg-type]
                    yield _episode(part, agent), end == total and (not ends or ends[-1] + 1 < end)
                start = end


def _episode(batch: Batch, agent: int) -> dict[str, Tensor]:
    return {
        "observations": batch.observations,
        "actions": batch.actions,
        "rewards": batch.rewards,
        "rewards_extrinsic": batch.rewards,
        "rewards_intrinsic": batch.novelty,
        "dones": batch.terminated,
        "agent": torch.full((len(batch.rewards),), agent),
    }


def _transitions(batch: Batch) -> dict[str, Tensor]:
    return {
        "observations": batch.observations,
        "actions": batch.actions,
        "rewards_extrinsic": batch.rewards,
        "rewards_intrinsic": batch.novelty,
        "next_observations": batch.next_observations,
        "dones": batch.terminated,
    }


def _renamed(transitions: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return them as the other tool's prioritized ring has them: with one reward."""
    names = ("observations", "actions", "next_observations", "dones")
    return {name: transitions[name] for name in names} | {
        "rewards": transitions["rewards_extrinsic"]
    }


def _affordances(state: StateDict, space: Space) -> AffordanceLayout:
    layout = state["environment"].get("layout")
    places = [] if layout is None else layout[0].tolist()
    return AffordanceLayout(
        positions={
            name: tuple(place) for name, place in zip(space.affordances, places, strict=False)
        },
        ordering=space.affordances,
        position_dim=space.position_dim,
    )
