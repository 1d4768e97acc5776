"""A file of reinforcement learning, version 3, as a checkpoint that our job loads.

Networks must fit, or nothing is taken over. Where the ring fits as well, learning continues at the
file's step with what it remembers; else it goes on there with an empty ring. Open episodes of
recurrent agents end as transitions of the ring. Environments begin new
episodes, and random streams are seeded anew: the format has neither.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from trainops.files.description import Imported
from trainops.files.errors import InvalidFields
from trainops.kind import KINDS
from trainops.kinds.rl.config import RlConfig
from trainops.kinds.rl.files.exploration import kept_exploration
from trainops.kinds.rl.files.exporting import FIRST_STAGE, foreign_substrate
from trainops.kinds.rl.files.file import RlFile
from trainops.kinds.rl.files.replay import PrioritizedReplay, Replay
from trainops.kinds.rl.files.ring import rows_of, steps_taken
from trainops.kinds.rl.files.world_spec import WorldSpec, check_world
from trainops.kinds.rl.job import FAILED_LOADING, RlJob
from trainops.kinds.rl.learners.dqn import DqnLearner
from trainops.kinds.rl.novelty import Novelties
from trainops.kinds.rl.priorities import LARGEST, Priorities
from trainops.kinds.rl.replay import Replay as Ring
from trainops.kinds.rl.replay import stream_of
from trainops.runtime import reproducibility
from trainops.runtime.checkpoint.snapshot import freeze
from trainops.runtime.errors import IncompatibleState
from trainops.runtime.job import StateDict
from trainops.runtime.receipt import Receipt, ReceiptItem

UNKNOWN_AGENT = -1  # of the episodes before the import, of which only the number is known


def import_rl(file: RlFile, config: RlConfig, inputs: Mapping[str, Path] | None = None) -> Imported:
    """Return what a job of this config would load to continue from the file.

    The random streams of this process stand afterwards where they stood before. Raises
    IncompatibleState where world or networks are others.
    """
    before = reproducibility.state_dict()
    try:
        job = cast(RlJob, KINDS["rl"].make_job(config, inputs))
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
            *_keep(file, job),
            *_left_behind(file, job, changed),
        ]
        state = freeze(job.state_dict() | {"random": reproducibility.state_dict()})
        _require_loadable(state, config)
        return Imported(job.step, state, Receipt(job.step, file.name, tuple(items)))
    finally:
        reproducibility.load_state_dict(before)


def _require_same_world(file: RlFile, job: RlJob) -> dict[str, str]:
    """Return what of the config differs. Raises IncompatibleState, in the order of the checks."""
    space = job.world.space
    try:
        return check_world(
            file,
            WorldSpec(
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
    """Stand at the file's step and episode, with its transitions where they fit."""
    population, agents, held = job.population, job.config.agents, file.population
    ring = population.replay
    given = rows_of(held, agents, ring.layout)
    count = steps_taken(held, len(given.rows), agents)
    _fill(ring, given.rows, count)
    items = [ReceiptItem("replay", bool(len(given.rows)) or not given.note, not given.note,
                         given.note)]  # fmt: skip
    if learner.priorities is not None:
        items += _take_priorities(held.replay, given.errors, learner, learner.priorities)
    if isinstance(held.replay, PrioritizedReplay) and learner.priorities is None:
        items.append(ReceiptItem("priorities", False, False, "this config draws evenly"))
    if held.current_episodes and any(len(each["actions"]) for each in held.current_episodes):
        note = "closed as transitions of the ring; their hidden states are discarded"
        items.append(ReceiptItem("open episodes", True, False, note))
    population.step = count // agents
    log = population.episodes.log
    blank = {name: torch.zeros(file.episode, dtype=kind) for name, (kind, _) in log.columns.items()}
    log.append(blank | {"agent": torch.full((file.episode,), UNKNOWN_AGENT)})
    episode = f"episode {file.episode}, {count} environment steps; new episodes begin"
    return [*items, ReceiptItem("data position", True, False, episode)]


def _take_priorities(
    held: Replay, errors: Tensor | None, learner: DqnLearner, priorities: Priorities
) -> list[ReceiptItem]:
    """Set the priorities of the transitions in the ring, by the file's errors where it has them."""
    ring, alpha = learner.replay, learner.config.replay.alpha
    if not len(ring):
        return []
    if errors is None or not isinstance(held, PrioritizedReplay):
        priorities.add(slice(0, ring.slots))
        return [ReceiptItem("priorities", False, False, "the file has none; all count as new")]
    values = torch.zeros(ring.slots, dtype=torch.bfloat16)
    numbers = torch.arange(ring.count - len(ring), ring.count)
    newest = errors[len(errors) - len(ring) :].double()
    values[numbers % ring.slots] = newest.pow(alpha).clamp(max=LARGEST).to(torch.bfloat16)
    priorities.load(values, min(LARGEST, held.max_priority**alpha))
    return [ReceiptItem("priorities")]


def _fill(ring: Ring, rows: Tensor, count: int) -> None:
    """Let the ring hold these rows, the newest of `count` that ever were."""
    ring.load(stream_of(rows, count), [], count - len(rows))
    ring.cut()


def _take_stages(file: RlFile, job: RlJob) -> list[ReceiptItem]:
    curriculum, stages = job.population.curriculum, file.curriculum.get("agent_stages")
    if not curriculum.stages:
        return []
    given = [] if stages is None else [int(stage) for stage in stages.tolist()]
    if all(stage >= FIRST_STAGE for stage in given):  # older files of trainops count from 0
        given = [stage - FIRST_STAGE for stage in given]
    known = range(len(job.config.curriculum.stages))
    if len(given) != len(curriculum.stages) or not all(stage in known for stage in given):
        note = f"{given} are no stages of this config's"
        return [ReceiptItem("curriculum", False, False, note)]
    curriculum.stages = given
    return [ReceiptItem("curriculum", True, False, "stages; what led to them starts anew")]


def _keep(file: RlFile, job: RlJob) -> list[ReceiptItem]:
    """Keep what only the other tool uses, for exports of this run; take our novelty back."""
    items, novelty, given = [], job.population.novelty, file.population.exploration
    saved = given.get("novelty")
    if novelty is not None:
        is_taken = isinstance(saved, Mapping) and _is_loaded(novelty, saved)
        note = (
            "" if is_taken else "its networks have another size or are missing; it starts untrained"
        )
        items.append(ReceiptItem("novelty", is_taken, is_taken, note))
    kept = kept_exploration(given, job.world.space.observation_dim)
    if kept is not None:
        items.append(ReceiptItem("exploration", True, True, "kept for exports to its tool"))
    elif "rnd_state" in given:
        note = "its layout is not the tool's; exports get a new one"
        items.append(ReceiptItem("exploration", False, False, note))
    ordering = file.affordances.ordering
    ordered = {"ordering": list(ordering)} if ordering else {}
    if kept is not None or ordered:
        job.imported = {**ordered, **({} if kept is None else {"exploration": kept})}
    return items


def _is_loaded(novelty: Novelties, state: Mapping[str, Any]) -> bool:
    before = freeze(novelty.state_dict())
    try:
        novelty.load_state_dict(dict(state))
    except FAILED_LOADING:
        novelty.load_state_dict(before)
        return False
    return True


def _left_behind(file: RlFile, job: RlJob, changed: Mapping[str, str]) -> list[ReceiptItem]:
    items = [
        ReceiptItem("environment", False, False, "episodes begin anew"),
        ReceiptItem("random streams", False, False, "seeded anew, as for a first start"),
    ]
    if not math.isclose(file.epsilon, job.population.epsilon):
        note = f"{file.epsilon:g} in the file, {job.population.epsilon:g} by this config's schedule"
        items.append(ReceiptItem("epsilon", False, False, note))
    if changed:
        names = ", ".join(list(changed)[:8]) + (", …" if len(changed) > 8 else "")
        items.append(
            ReceiptItem("config", False, True, f"this operation's holds; differs: {names}")
        )
    return items


def _require_loadable(state: StateDict, config: RlConfig) -> None:
    parts = {name: part for name, part in state.items() if name != "random"}
    KINDS["rl"].make_job(config).load_state_dict(parts)
