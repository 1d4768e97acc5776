"""Reading the fields of a reinforcement learning run's file."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from trainops.files.fields import Fields, is_integer, shown
from trainops.files.optimizers import read_optimizer, read_scheduler
from trainops.kinds.rl.files.file import (
    OPEN_EPISODE,
    POPULATION_VERSION,
    AffordanceLayout,
    FilePopulation,
    RlFile,
    Substrate,
)
from trainops.kinds.rl.files.replay import read_episode, read_replay


def parse(tree: Mapping[str, Any]) -> RlFile:
    """Return the file's values. Raises InvalidFields."""
    fields = Fields(tree)
    substrate = fields.within("substrate_metadata")
    file = RlFile(
        episode=fields.integer("episode"),
        timestamp=fields.number("timestamp", at_least=0),
        substrate=Substrate(substrate.text("substrate_type"), substrate.integer("position_dim")),
        population=_read_population(fields.within("population_state")),
        curriculum=_read_curriculum(fields),
        affordances=_read_affordances(fields.within("affordance_layout"), substrate),
        agent_ids=fields.texts("agent_ids"),
        epsilon=fields.number("epsilon", at_least=0, default=0.0),
        training_config=fields.mapping("training_config"),
        config_dir=fields.text("config_dir"),
        brain_hash=fields.text("brain_hash", default=None),
        config_hash=fields.text("config_hash", default=None),
        observation_dim=fields.integer("observation_dim", default=None),
        action_dim=fields.integer("action_dim", default=None),
        meter_count=fields.integer("meter_count", default=None),
        observation_field_uuids=fields.texts("observation_field_uuids", default=None),
        drive_hash=fields.text("drive_hash", default=None),
    )
    fields.finish()
    return file


def _read_population(fields: Fields) -> FilePopulation:
    if fields.integer("version", default=POPULATION_VERSION) != POPULATION_VERSION:
        fields.wrong("version", f"must be {POPULATION_VERSION}")
    return FilePopulation(
        q_network=fields.tensors("q_network"),
        target_network=fields.tensors("target_network", default=None),
        optimizer=read_optimizer(fields.within("optimizer")),
        scheduler=read_scheduler(fields.within("scheduler")) if fields.has("scheduler") else None,
        replay=read_replay(fields.within("replay_buffer")),
        total_steps=fields.integer("total_steps"),
        training_step_counter=fields.integer("training_step_counter", default=0),
        exploration=fields.mapping("exploration_state", default={}),
        universe=fields.mapping("universe_metadata", default={}),
        current_episodes=_read_open_episodes(fields),
        hidden_states=fields.tensors("hidden_states", default=None),
        epsilon=fields.number("epsilon", at_least=0, default=None),
    )


def _read_open_episodes(fields: Fields) -> tuple[Mapping[str, Any], ...] | None:
    if not fields.has("current_episodes"):
        return None
    episodes = []
    for number, each in enumerate(fields.each("current_episodes")):
        episode: dict[str, Any] = dict(read_episode(each, OPEN_EPISODE))
        lengths = {len(tensor) for tensor in episode.values() if tensor.dim()}
        if len(lengths) != 1:
            fields.wrong(f"current_episodes[{number}]", f"has tensors of lengths {sorted(lengths)}")
        episodes.append(episode | {"hidden_states": each.plain("hidden_states", default=None)})
    return tuple(episodes)


def _read_curriculum(fields: Fields) -> Mapping[str, Any]:
    """Return the curriculum; its stages may be a tensor or a list, and become a tensor."""
    curriculum = fields.mapping("curriculum_state", default={})
    stages = curriculum.get("agent_stages")
    if isinstance(stages, list | tuple) and all(map(is_integer, stages)):
        stages = torch.tensor([int(stage) for stage in stages], dtype=torch.int64)
    if stages is not None and not (isinstance(stages, Tensor) and stages.dim() == 1):
        problem = f"is {shown(stages)}; must be a tensor of one dimension, or a list of integers"
        fields.wrong("curriculum_state.agent_stages", problem)
        return {}
    return {**curriculum, **({} if stages is None else {"agent_stages": stages})}


def _read_affordances(fields: Fields, substrate: Fields) -> AffordanceLayout:
    """Return the layout. One without `positions` is flat: it has the places themselves, by id."""
    is_flat = "positions" not in fields.names() and "position_dim" not in fields.names()
    found = fields.items() if is_flat else fields.mapping("positions")
    positions = {}
    for name, place in found.items():
        plain = place.tolist() if isinstance(place, Tensor) and place.dim() == 1 else place
        if not isinstance(plain, list | tuple) or not all(map(is_integer, plain)):
            problem = f"is {shown(place)}; must be a list of integers"
            fields.wrong(name if is_flat else f"positions.{name}", problem)
            continue
        positions[str(name)] = tuple(map(int, plain))
    if is_flat:
        return AffordanceLayout(positions, (), substrate.integer("position_dim"))
    return AffordanceLayout(
        positions=positions,
        ordering=fields.texts("ordering", default=()),
        position_dim=fields.integer("position_dim"),
    )
