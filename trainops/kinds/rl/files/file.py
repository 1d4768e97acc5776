"""The file of a reinforcement learning run, version 3: what it holds, read and written."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from trainops.files.errors import UnsupportedVersion
from trainops.files.fields import shown
from trainops.kinds.rl.files.replay import (
    Replay,
    SequentialReplay,
    finished,
    observation_dims,
    write_replay,
)

VERSION, POPULATION_VERSION = 3, 2
OPEN_EPISODE = ("observations", "actions", "rewards", "dones")
OPTIONAL = (
    "brain_hash", "config_hash", "observation_dim", "action_dim", "meter_count",
    "observation_field_uuids", "drive_hash",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePopulation:
    """The agents: networks, optimizer, what they remember, how they explore.

    `current_episodes` and `hidden_states` are of recurrent agents stopped inside an episode; real
    files have none, because open episodes are flushed into the replay buffer first.
    """

    q_network: Mapping[str, Tensor]
    optimizer: Mapping[str, Any]
    replay: Replay
    target_network: Mapping[str, Tensor] | None = None
    scheduler: Mapping[str, Any] | None = None
    total_steps: int = 0
    training_step_counter: int = 0
    exploration: Mapping[str, Any] = field(default_factory=dict)
    universe: Mapping[str, Any] = field(default_factory=dict)
    current_episodes: tuple[Mapping[str, Any], ...] | None = None
    hidden_states: Mapping[str, Tensor] | None = None
    epsilon: float | None = None

    def flushed(self) -> "FilePopulation":
        """Return the population with its open episodes in the replay buffer, so none is lost."""
        replay = self.replay
        for episode in self.current_episodes or ():
            if isinstance(replay, SequentialReplay) and len(episode["actions"]):
                replay = replay.with_episode(finished(episode, replay))
        return replace(self, replay=replay, current_episodes=None, hidden_states=None)


@dataclass(frozen=True, slots=True)
class Substrate:
    """The kind of space the agents live in."""

    type: str
    position_dim: int


@dataclass(frozen=True, slots=True)
class AffordanceLayout:
    """Where on the grid things can be used."""

    positions: Mapping[str, tuple[int, ...]]
    ordering: tuple[str, ...]
    position_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RlFile:
    """One checkpoint of a reinforcement learning run. Resume continues at `episode` + 1."""

    episode: int
    timestamp: float
    substrate: Substrate
    population: FilePopulation
    curriculum: Mapping[str, Any]
    affordances: AffordanceLayout
    agent_ids: tuple[str, ...]
    epsilon: float
    training_config: Mapping[str, Any]
    config_dir: str
    brain_hash: str | None = None
    config_hash: str | None = None
    observation_dim: int | None = None
    action_dim: int | None = None
    meter_count: int | None = None
    observation_field_uuids: tuple[str, ...] | None = None
    drive_hash: str | None = None

    @property
    def name(self) -> str:
        """Return the file's name as the other tool would choose it."""
        return f"checkpoint_ep{self.episode:05d}.pt"


def check_version(tree: Mapping[str, Any]) -> str:
    """Return what to say about the version. Raises UnsupportedVersion."""
    found = tree.get("version", 1)
    if type(found) is int and found < VERSION:
        raise UnsupportedVersion(
            f"this is a checkpoint of version {found}; {VERSION} is expected. Older ones do not "
            "say what world they are of and cannot be converted: retrain"
        )
    if found != VERSION:
        raise UnsupportedVersion(f"version is {shown(found)}; {VERSION} is expected")
    return f"reinforcement learning, version {VERSION}"


def to_tree(file: RlFile) -> dict[str, Any]:
    """Return what is saved, with the keys that the other tool writes."""
    optional = {name: getattr(file, name) for name in OPTIONAL}
    if file.observation_field_uuids is not None:
        optional["observation_field_uuids"] = list(file.observation_field_uuids)
    return {
        "version": VERSION,
        "episode": file.episode,
        "timestamp": file.timestamp,
        "substrate_metadata": {
            "position_dim": file.substrate.position_dim,
            "substrate_type": file.substrate.type,
        },
        "population_state": _population_tree(file.population),
        "curriculum_state": dict(file.curriculum),
        "affordance_layout": {
            "positions": {name: list(each) for name, each in file.affordances.positions.items()},
            "ordering": list(file.affordances.ordering),
            "position_dim": file.affordances.position_dim,
        },
        "agent_ids": list(file.agent_ids),
        "epsilon": file.epsilon,
        "training_config": dict(file.training_config),
        "config_dir": file.config_dir,
        **{name: value for name, value in optional.items() if value is not None},
    }


def disagreements(file: RlFile) -> dict[str, str]:
    """Return what does not fit the rest of the file, by place."""
    claims = [*_population_claims(file), *_world_claims(file)]
    return {
        place: f"is {shown(found)}; by the rest of the file {shown(expected)}"
        for place, found, expected in claims
        if None not in (found, expected) and found != expected
    }


def _population_claims(file: RlFile) -> Iterator[tuple[str, Any, Any]]:
    """Yield a place, what it says, and what it should say; None where nothing is known."""
    population = file.population
    yield (
        "population_state.universe_metadata.obs_dim",
        population.universe.get("obs_dim"),
        file.observation_dim,
    )
    yield (
        "population_state.universe_metadata.action_dim",
        population.universe.get("action_dim"),
        file.action_dim,
    )
    for size in observation_dims(population.replay):
        yield "population_state.replay_buffer.observations", size, file.observation_dim
    if population.target_network is not None:
        target, network = population.target_network, population.q_network
        yield "population_state.target_network", _shapes(target), _shapes(network)


def _world_claims(file: RlFile) -> Iterator[tuple[str, Any, Any]]:
    layout, stages = file.affordances, file.curriculum.get("agent_stages")
    yield "affordance_layout.position_dim", layout.position_dim, file.substrate.position_dim
    for name, place in layout.positions.items():
        yield f"affordance_layout.positions.{name}", len(place), layout.position_dim
    if stages is not None:
        yield "curriculum_state.agent_stages", len(stages), len(file.agent_ids)


def _shapes(network: Mapping[str, Tensor]) -> list[tuple[str, tuple[int, ...]]]:
    return [(name, tuple(each.shape)) for name, each in network.items()]


def _population_tree(population: FilePopulation) -> dict[str, Any]:
    tree: dict[str, Any] = {
        "version": POPULATION_VERSION,
        "q_network": OrderedDict(population.q_network),
        "optimizer": population.optimizer,
        "scheduler": population.scheduler,
        "total_steps": population.total_steps,
        "exploration_state": dict(population.exploration),
        "universe_metadata": dict(population.universe),
        "target_network": None
        if population.target_network is None
        else OrderedDict(population.target_network),
        "training_step_counter": population.training_step_counter,
        "replay_buffer": write_replay(population.replay),
    }
    if population.current_episodes is not None:
        tree["current_episodes"] = [dict(each) for each in population.current_episodes]
    if population.hidden_states is not None:
        tree["hidden_states"] = dict(population.hidden_states)
    if population.epsilon is not None:
        tree["epsilon"] = population.epsilon
    return tree
