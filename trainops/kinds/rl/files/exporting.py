"""Our checkpoint of agents as a file of reinforcement learning, version 3."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainops.kinds.rl.config import RlConfig
from trainops.kinds.rl.environment import EnvironmentContext, Space
from trainops.kinds.rl.files.agent import only
from trainops.kinds.rl.files.exploration import exploration_state
from trainops.kinds.rl.files.file import AffordanceLayout, FilePopulation, RlFile, Substrate
from trainops.kinds.rl.files.replay import (
    PlainReplay,
    PrioritizedReplay,
    Replay,
    SequentialReplay,
)
from trainops.kinds.rl.replay import Batch, TransitionLayout
from trainops.kinds.rl.schedules import linear
from trainops.runtime.job import StateDict

FIRST_STAGE = 1  # the other tool counts stages from 1


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
    stages = torch.tensor([stage + FIRST_STAGE for stage in plain["stages"] or [0] * config.agents])
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
    space: Space = recipe.builder()(parameters, EnvironmentContext(config.seed)).space
    return space


def foreign_substrate(space: Space) -> str:
    """Return the kind of space as the other tool calls it: "Grid2DSubstrate"."""
    is_of_gymnasium = space.substrate.startswith("gymnasium:")
    return space.substrate if is_of_gymnasium else f"{space.substrate}Substrate"


def _population(state: StateDict, config: RlConfig, space: Space) -> FilePopulation:
    plain = state["state"]
    held = _Held(state, config, space)
    return FilePopulation(
        q_network=state["model"],
        target_network=state.get("target"),
        optimizer=state["optimizer"],
        replay=held.replay(),
        total_steps=plain["environment_steps"],
        training_step_counter=plain["updates"],
        exploration=exploration_state(state, config, space),
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
        self.layout = TransitionLayout(space)

    def replay(self) -> Replay:
        if "memory" in self.state:
            closed = tuple(
                {name: each for name, each in episode.items() if name != "rewards"}
                for episode, is_open in self._episodes()
                if not is_open
            )
            return SequentialReplay(closed, self.capacity)
        transitions = _transitions(self.layout.batch(self._by_slot(self.rows))) if self.size else {}
        if "priorities" in self.state:
            config = self.prioritized
            return PrioritizedReplay(
                size=self.size, position=self.position % self.capacity, capacity=self.capacity,
                transitions=_with_one_reward(transitions),
                priorities=self._priorities(), alpha=config.alpha,
                max_priority=raw_priority(self.state["learning"]["largest_priority"], config.alpha),
                beta=linear(config.beta, 1.0, config.beta_steps, self.count), beta_annealing=True,
            )  # fmt: skip
        return PlainReplay(self.size, self.position, self.capacity, transitions)

    @property
    def position(self) -> int:
        """Where the next transition goes: in a ring that is not full, behind the newest one."""
        return self.count if self.size == self.capacity else self.size

    def _priorities(self) -> NDArray[np.float32]:
        """Return the errors that priorities follow from, in the order of `_by_slot`."""
        numbers = torch.arange(self.count - self.size, self.count)
        newest = self.state["priorities"][numbers % self.capacity].double()
        errors = torch.zeros(self.capacity, dtype=torch.float64)
        errors[: self.size] = self._by_slot(raw_priority(newest, self.prioritized.alpha))
        return errors.numpy().astype(np.float32)

    def open_episodes(self) -> tuple[Mapping[str, Any], ...]:
        """Return what each agent did in the episode that is not over yet."""
        found = {int(each["agent"][0]): each for each, is_open in self._episodes() if is_open}
        empty = _episode(self.layout.batch(self.rows[:0]), 0)
        return tuple(
            {n: each for n, each in found.get(agent, empty).items() if n != "rewards_extrinsic"}
            | {"hidden_states": None}
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
        "next_observations": batch.next_observations,
        **_own(batch),
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
        **_own(batch),
    }


def _own(batch: Batch) -> dict[str, Tensor]:
    """Return what the other tool does not keep, and does not mind."""
    masks = {"masks": batch.masks, "next_masks": batch.next_masks}
    given = {name: each for name, each in masks.items() if each is not None}
    return {"truncated": batch.truncated, **given}


def _with_one_reward(transitions: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return them as the other tool's prioritized ring has them."""
    rewards = ("rewards_extrinsic", "rewards_intrinsic")
    kept = {name: each for name, each in transitions.items() if name not in rewards}
    return kept | ({"rewards": transitions["rewards_extrinsic"]} if transitions else {})


def raw_priority(priority: Any, alpha: float) -> Any:
    """Return the error of which a priority is the power `alpha`: the other tool keeps errors."""
    return priority ** (1 / alpha) if alpha else priority


def _affordances(state: StateDict, space: Space) -> AffordanceLayout:
    layout = state["environment"].get("layout")
    places = [] if layout is None else layout[0].tolist()
    return AffordanceLayout(
        positions={
            name: tuple(place) for name, place in zip(space.affordances, places, strict=False)
        },
        ordering=tuple((state.get("imported") or {}).get("ordering", space.affordances)),
        position_dim=space.position_dim,
    )
