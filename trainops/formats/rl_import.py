"""A file of reinforcement learning, version 3, as a checkpoint that our job loads.

Networks must fit, or nothing is taken over. Where the ring fits as well, learning goes on at the
file's step with what it remembers; else it goes on there with an empty ring. Environments begin new
episodes, and random streams are seeded anew: the format has neither.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from trainops.engines import reproducibility
from trainops.engines.errors import IncompatibleState
from trainops.engines.job import StateDict
from trainops.engines.receipt import Receipt, ReceiptItem
from trainops.engines.registry import ENGINES
from trainops.engines.rl.config import RlConfig
from trainops.engines.rl.environment import Outcome
from trainops.engines.rl.job import RlJob
from trainops.engines.rl.learners.dqn import DqnLearner
from trainops.engines.rl.replay import Layout, stream_of
from trainops.engines.rl.replay import Replay as Ring
from trainops.engines.snapshot import freeze
from trainops.formats.errors import InvalidFields
from trainops.formats.replay import PlainReplay
from trainops.formats.rl import RlFile
from trainops.formats.rl_export import foreign_substrate
from trainops.formats.rl_world import World, check_world

UNKNOWN_AGENT = -1  # of the episodes before the import, of which only the number is known


@dataclass(frozen=True, slots=True)
class ImportedAgents:
    """The parts of a checkpoint as CheckpointStore.write takes them, and what they are."""

    step: int
    state: StateDict
    receipt: Receipt


def import_rl(
    file: RlFile, config: RlConfig, inputs: Mapping[str, Path] | None = None
) -> ImportedAgents:
    """Return what a job of this config would load to go on from the file.

    The random streams of this process stand afterwards where they stood before. Raises
    IncompatibleState where world or networks are others.
    """
    before = reproducibility.state_dict()
    try:
        job = cast(RlJob, ENGINES["rl"].make_job(config, inputs))
        learner = job.population.learner
        if config.is_separate:
            raise IncompatibleState("the file has one network, here each agent has its own")
        if not isinstance(learner, DqnLearner):
            raise IncompatibleState("the file is of Q-learning, the config of another algorithm")
        changed = _require_same_world(file, job)
        items = [
            *_take_networks(file, learner),
            *_take_place(file, job, learner),
            *_take_stages(file, job),
            *_left_behind(file, job, changed),
        ]
        state = freeze(job.state_dict() | {"random": reproducibility.state_dict()})
        _require_loadable(state, config)
        return ImportedAgents(job.step, state, Receipt(job.step, file.name, tuple(items)))
    finally:
        reproducibility.load_state_dict(before)


def _require_same_world(file: RlFile, job: RlJob) -> dict[str, str]:
    """Return what of the config differs. Raises IncompatibleState, in the order of the checks."""
    space = job.world.space
    try:
        return check_world(
            file,
            World(
                substrate_type=foreign_substrate(space),
                position_dim=space.position_dim,
                observation_dim=space.observation_dim,
                action_dim=len(space.actions),
                meter_count=len(space.meters),
                observation_field_uuids=space.known_as,
                field_names=tuple(name for name, _ in space.fields),
                meters=space.meters,
                affordances=space.affordances,
                config_hash=job.provenance["config_hash"],
                training_config=job.provenance["config"],
            ),
        )
    except InvalidFields as error:
        raise IncompatibleState(f"{error}{_hint(error, file)}") from error


def _hint(error: InvalidFields, file: RlFile) -> str:
    """Return how to say that fields of another tool are those of this world."""
    if "observation_field_uuids" not in error.errors:
        return ""
    ids = ", ".join(file.observation_field_uuids or ())
    return f". A grid world whose fields these are says so: parameters.field_ids: [{ids}]"


def _take_networks(file: RlFile, learner: DqnLearner) -> list[ReceiptItem]:
    population, own = file.population, learner.online.state_dict()
    target = population.target_network or population.q_network
    for name, network in (("q_network", population.q_network), ("target_network", target)):
        given = {key: tuple(each.shape) for key, each in network.items()}
        wanted = {key: tuple(each.shape) for key, each in own.items()}
        if given != wanted:
            raise IncompatibleState(f"{name} has {given}, this config {wanted}")
    learner.online.load_state_dict(dict(population.q_network))
    learner.target.load_state_dict(dict(target))
    learner.updates = population.training_step_counter
    return [ReceiptItem("model"), ReceiptItem("target"), _take_optimizer(file, learner)]


def _take_optimizer(file: RlFile, learner: DqnLearner) -> ReceiptItem:
    """Take over the moments; learning rate and the rest are the config's."""
    moments = file.population.optimizer["state"]
    own = learner.optimizer.state_dict()
    parameters = list(learner.online.parameters())
    fits = all(
        number < len(parameters)
        and {"step", "exp_avg", "exp_avg_sq"} == each.keys()
        and each["exp_avg"].shape == each["exp_avg_sq"].shape == parameters[number].shape
        for number, each in moments.items()
    )
    if not fits:
        return ReceiptItem("optimizer", False, False, "its moments are of other parameters")
    learner.optimizer.load_state_dict({"state": dict(moments), "param_groups": own["param_groups"]})
    return ReceiptItem("optimizer", note="its moments; the learning rate is this config's")


def _take_place(file: RlFile, job: RlJob, learner: DqnLearner) -> list[ReceiptItem]:
    """Stand at the file's step and episode, with its ring where that fits."""
    population, agents, held = job.population, job.config.agents, file.population.replay
    ring = population.replay
    count = file.population.total_steps // agents * agents
    note = ""
    if not isinstance(held, PlainReplay):
        note = "only a plain ring is taken over"
    elif held.position % agents or held.size % agents:
        note = f"its {held.size} transitions are not of {agents} agents each step"
    if note or not isinstance(held, PlainReplay):
        _fill(ring, torch.zeros(0, ring.layout.width), count)
    else:
        count = held.position
        _fill(ring, _rows(held, ring.layout), count)
    if learner.priorities is not None and len(ring):
        learner.priorities.add(slice(0, ring.slots))
    population.step = count // agents
    log = population.episodes.log
    blank = {name: torch.zeros(file.episode, dtype=kind) for name, (kind, _) in log.columns.items()}
    log.append(blank | {"agent": torch.full((file.episode,), UNKNOWN_AGENT)})
    episode = f"episode {file.episode}, {count} environment steps; new episodes begin"
    return [
        ReceiptItem("replay", not note, not note, note),
        ReceiptItem("data position", True, False, episode),
    ]


def _rows(held: PlainReplay, layout: Layout) -> Tensor:
    """Return the file's transitions as rows of ours, the oldest first; every action was allowed."""
    kept = held.transitions
    if not held.size:
        return torch.zeros(0, layout.width)
    dones = kept["dones"].bool()
    outcome = Outcome(
        kept["next_observations"], kept["rewards_extrinsic"], dones, torch.zeros_like(dones)
    )
    masks = torch.ones(held.size, layout.actions) if layout.has_masks else None
    rows = layout.row(
        kept["observations"], kept["actions"], outcome, kept["rewards_intrinsic"], masks, masks
    )
    is_full = held.size == held.capacity
    return rows.roll(-(held.position % held.capacity), 0) if is_full else rows


def _fill(ring: Ring, rows: Tensor, count: int) -> None:
    """Let the ring hold these rows, the newest of `count` that ever were."""
    ring.load(stream_of(rows, count), [], count - len(rows))
    ring.cut()


def _take_stages(file: RlFile, job: RlJob) -> list[ReceiptItem]:
    curriculum, stages = job.population.curriculum, file.curriculum.get("agent_stages")
    if not curriculum.stages:
        return []
    given = [] if stages is None else [int(stage) for stage in stages.tolist()]
    known = range(len(job.config.curriculum.stages))
    if len(given) != len(curriculum.stages) or not all(stage in known for stage in given):
        note = f"{given} are no stages of this config's"
        return [ReceiptItem("curriculum", False, False, note)]
    curriculum.stages = given
    return [ReceiptItem("curriculum", True, False, "stages; what led to them starts anew")]


def _left_behind(file: RlFile, job: RlJob, changed: Mapping[str, str]) -> list[ReceiptItem]:
    items = [
        ReceiptItem("environment", False, False, "episodes begin anew"),
        ReceiptItem("random streams", False, False, "seeded anew, as for a first start"),
    ]
    if not math.isclose(file.epsilon, job.population.epsilon):
        note = f"{file.epsilon:g} in the file, {job.population.epsilon:g} by this config's schedule"
        items.append(ReceiptItem("epsilon", False, False, note))
    if "rnd_state" in file.population.exploration:
        items.append(ReceiptItem("novelty", False, False, "its networks are of another size"))
    if changed:
        names = ", ".join(list(changed)[:8]) + (", …" if len(changed) > 8 else "")
        items.append(
            ReceiptItem("config", False, True, f"this operation's holds; differs: {names}")
        )
    return items


def _require_loadable(state: StateDict, config: RlConfig) -> None:
    parts = {name: part for name, part in state.items() if name != "random"}
    ENGINES["rl"].make_job(config).load_state_dict(parts)
