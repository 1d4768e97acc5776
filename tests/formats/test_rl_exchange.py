"""A file of reinforcement learning as an operation's first checkpoint, and back."""

import pytest
import torch

from tests.formats.originals import REAL, original, tree
from tests.rl.cases import ADAPTIVE, CARTPOLE, GRID, PRIORITIZED, SEPARATE, of
from tests.rl.populations import played
from tests.thinning import quick_some
from trainops.files.digests import beside
from trainops.files.verify import verify
from trainops.files.writing import write
from trainops.kind import KINDS
from trainops.kinds.rl.files.exchange import read_rl
from trainops.kinds.rl.files.exporting import export_rl
from trainops.kinds.rl.files.importing import import_rl
from trainops.kinds.rl.files.replay import PlainReplay, PrioritizedReplay, SequentialReplay
from trainops.runtime import reproducibility
from trainops.runtime.checkpoint.snapshot import freeze
from trainops.runtime.checkpoint.store import CheckpointStore, CheckpointType
from trainops.runtime.errors import IncompatibleState

pytestmark = pytest.mark.slow

# A world of 66 numbers to see, 8 actions and 8 meters, as the original file's.
NAMES = ("Bed", "Shower", "Job")
METERS = ("energy", "hygiene", "satiation", "money", "mood", "social", "health", "fitness")
WORLD = {
    "size": [5, 10],
    "use": "named",
    "temporal": True,
    "affordances": [{"name": name, "position": [i, 2]} for i, name in enumerate(NAMES)],
    "meters": [{"name": name, "depletion": 0.01, "is_fatal": name == "energy"} for name in METERS],
    "field_ids": tree("rl")["observation_field_uuids"],
}
FITTING = {
    "recipe": "grid_world",
    "parameters": WORLD,
    "network": {"hidden_sizes": [32, 32], "layer_norm": True},
    "replay": {"capacity": 256},
    "dqn": {"learning_starts": 10, "batch_size": 8},
    "environment_steps": 300,
    "evaluation": {"every_steps": 1000, "episodes": 1},
}
SOURCES = ["rl", *(path for path in REAL if "ep0" in path.name)]


def config(**more):
    return KINDS["rl"].parse_config({**FITTING, **more})


def taken_in(path, **more):
    return import_rl(read_rl(path)[0], config(**more))


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_a_file_continues_at_its_step_with_its_networks_ring_and_moments(source, tmp_path):
    path = original(source, tmp_path)
    file, _ = read_rl(path)
    imported = taken_in(path)
    job = KINDS["rl"].make_job(config())
    job.load_state_dict({n: part for n, part in imported.state.items() if n != "random"})
    trainer, population = job.population.learner, file.population
    assert job.step == population.total_steps == 240
    assert job.population.episodes.completed == file.episode
    for name, weights in population.q_network.items():
        assert torch.equal(trainer.online.state_dict()[name], weights)
    for number, moments in population.optimizer["state"].items():
        mine = trainer.optimizer.state_dict()["state"][number]
        assert all(torch.equal(mine[name], moments[name]) for name in moments)
    batch = trainer.replay.at(torch.arange(240))
    assert torch.equal(batch.observations, population.replay.transitions["observations"])
    assert torch.equal(batch.actions, population.replay.transitions["actions"])
    while job.step < job.total_steps:
        job.advance()


def test_the_receipt_says_what_a_file_has_not(tmp_path):
    items = {item.part: item for item in taken_in(original("rl", tmp_path)).receipt.items}
    assert items["model"].exact and items["replay"].exact
    assert "0.99 in the file" in items["epsilon"].note
    assert not items["environment"].exact and not items["random streams"].exact
    assert "training_config" in items["config"].note


def test_importing_draws_from_no_stream_of_this_process(tmp_path):
    path = original("rl", tmp_path)
    before = reproducibility.state_dict()
    taken_in(path)
    assert torch.equal(before["torch"], reproducibility.state_dict()["torch"])


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"parameters": {**WORLD, "size": [49]}}, "substrate_type: is 'Grid2DSubstrate' in the f"),
        ({"parameters": {**WORLD, "temporal": False}}, "observation_dim: is 66 in the file and 63"),
        ({"parameters": {**WORLD, "use": "here", "size": [5, 10]}}, "action_dim: is 8 .* and 6"),
        (
            {"parameters": {**WORLD, "field_ids": []}},
            "observation_field_uuids: 19 in .*only here: position .*field_ids: .c15b42ea6d374252",
        ),
        (
            {"parameters": {**WORLD, "meters": [{"name": f"m{i}"} for i in range(8)]}},
            "meter_names: only in the file: energy, .*; only here: m0, ",
        ),
        (
            {"parameters": {**WORLD, "affordances": [{"name": n} for n in ("Bed", "Job", "Moon")]}},
            "affordance_layout.ordering: only here: Moon",
        ),
        ({"network": {"hidden_sizes": [32]}}, "q_network has"),
        ({"algorithm": "ppo"}, "of Q-learning"),
    ],
)
def test_a_file_of_another_world_is_refused_with_both_values(more, problem, tmp_path):
    if "parameters" in more and more["parameters"]["size"] == [49]:
        more["parameters"]["affordances"] = [{"name": name} for name in NAMES]
    with pytest.raises(IncompatibleState, match=problem):
        taken_in(original("rl", tmp_path), **more)


def test_a_ring_that_does_not_fit_is_left_and_the_place_stays(tmp_path):
    imported = taken_in(original("rl", tmp_path), agents=7)
    assert imported.step == 240 // 7
    (item,) = [item for item in imported.receipt.items if item.part == "replay"]
    assert not item.restored and "do not hold 7 agents" in item.note


def test_a_smaller_ring_takes_the_newest_over(tmp_path):
    path = original("rl", tmp_path)
    imported = taken_in(path, replay={"capacity": 100})
    job = KINDS["rl"].make_job(config(replay={"capacity": 100}))
    job.load_state_dict({n: part for n, part in imported.state.items() if n != "random"})
    held = read_rl(path)[0].population.replay.transitions["observations"]
    ring = job.population.replay
    assert torch.equal(ring.at(torch.arange(140, 240)).observations, held[140:])


CONFIGS = {
    "plain": (of(GRID, "dqn", 2, 60, replay={"capacity": 24}, **ADAPTIVE), PlainReplay),
    "prioritized": (of(GRID, "dqn", 2, 60, **PRIORITIZED), PrioritizedReplay),
    "recurrent": (of(GRID, "recurrent_dqn", 2, 60), SequentialReplay),
    "ppo": (of(CARTPOLE, "ppo", 2, 60), PlainReplay),
    "sequences": (
        of(GRID, "recurrent_dqn", 2, 60, replay={"prioritized": True}),
        SequentialReplay,
    ),
}


@pytest.mark.parametrize("name", quick_some(CONFIGS, every=3))
def test_a_checkpoint_of_each_learner_is_a_file_that_their_checks_accept(name, tmp_path):
    changes, kind = CONFIGS[name]
    job = played(changes, 23)
    parsed = KINDS["rl"].parse_config({"seed": 7, **changes})
    file = export_rl(freeze(job.state_dict()), parsed, saved_at=1.0)
    path = tmp_path / file.name
    write(file, path)
    assert path.name == f"checkpoint_ep{job.population.episodes.completed:05d}.pt"
    assert beside(path).exists()
    assert verify(path).passed, verify(path)
    again, _ = read_rl(path)
    assert isinstance(again.population.replay, kind)
    assert again.population.total_steps == 46 and again.curriculum["agent_stages"].shape == (2,)
    if kind is SequentialReplay:
        rows = sum(len(each["actions"]) for each in again.population.current_episodes)
        assert rows == int(job.population.episodes.lengths.sum())
        assert rows + again.population.replay.num_transitions == 46


APART = of(GRID, "dqn", 3, 60, **PRIORITIZED, **SEPARATE, **ADAPTIVE)
SEPARATELY = {
    "prioritized": APART,
    "plain": {**APART, "replay": {"capacity": 60}},
    "recurrent": of(GRID, "recurrent_dqn", 3, 60, **SEPARATE),
    "ppo": of(CARTPOLE, "ppo", 3, 60, **SEPARATE),
}


@pytest.mark.parametrize("name", quick_some(SEPARATELY, every=3))
def test_one_of_separate_agents_becomes_a_file(name, tmp_path):
    job = played(SEPARATELY[name], 23)
    parsed = KINDS["rl"].parse_config({"seed": 7, **SEPARATELY[name]})
    file = export_rl(freeze(job.state_dict()), parsed, saved_at=1.0, agent=2)
    write(file, tmp_path / "file.pt")
    assert verify(tmp_path / "file.pt").passed, verify(tmp_path / "file.pt")
    network = job.population.learner.learners[2].state_dict()["model"]
    assert all(torch.equal(file.population.q_network[key], network[key]) for key in network)
    assert (file.agent_ids, file.population.total_steps) == (("agent_0",), 23)
    log = job.population.episodes.log.column("agent")
    assert file.episode == int((log == 2).sum())
    ring = job.population.learner.learners[2].replay
    held = ring.at(torch.arange(ring.first, ring.count)).observations
    if name == "recurrent":
        kept = [each["observations"] for each in file.population.replay.episodes]
        kept += [each["observations"] for each in file.population.current_episodes]
        assert torch.equal(torch.cat(kept), held)
    else:
        turn = ring.first % ring.slots
        assert torch.equal(file.population.replay.transitions["observations"].roll(-turn, 0), held)


def test_the_best_evaluated_agent_is_exported_if_none_is_named():
    job = played(APART, 12)
    parsed = KINDS["rl"].parse_config({"seed": 7, **APART})
    state = freeze(job.state_dict())
    for agent in range(3):
        state["state"]["evaluations"]["newest"]["agent"] = agent
        file = export_rl(state, parsed, saved_at=1.0)
        assert torch.equal(
            file.population.q_network["0.weight"], state["model"][f"{agent}.0.weight"]
        )
    with pytest.raises(IncompatibleState, match="agent is 3; allowed: 0 to 2"):
        export_rl(state, parsed, saved_at=1.0, agent=3)
    shared = KINDS["rl"].parse_config({"seed": 7, **CONFIGS["plain"][0]})
    with pytest.raises(IncompatibleState, match="all agents share one"):
        export_rl(
            freeze(played(CONFIGS["plain"][0], 3).state_dict()), shared, saved_at=1.0, agent=0
        )


@pytest.mark.slow
def test_an_agent_that_was_exported_continues_alone(tmp_path):
    changes = SEPARATELY["plain"]
    job = played(changes, 23)
    parsed = KINDS["rl"].parse_config({"seed": 7, **changes})
    path = tmp_path / "file.pt"
    write(export_rl(freeze(job.state_dict()), parsed, saved_at=1.0, agent=1), path)
    alone = {**changes, "agents": 1, "environment_steps": 60, "population": {"networks": "shared"},
             "replay": {"capacity": 20}}  # fmt: skip
    imported = import_rl(read_rl(path)[0], KINDS["rl"].parse_config({"seed": 7, **alone}))
    assert imported.step == 23 and {i.part: i for i in imported.receipt.items}["replay"].exact
    with pytest.raises(IncompatibleState, match="here each agent has its own"):
        import_rl(read_rl(path)[0], parsed)


def test_the_other_tools_names_of_fields_come_back(tmp_path):
    imported = taken_in(original("rl", tmp_path))
    state = {name: part for name, part in imported.state.items() if name != "random"}
    file = export_rl(state, config(), saved_at=1.0)
    assert list(file.observation_field_uuids) == WORLD["field_ids"]


def test_a_file_of_ours_comes_back(tmp_path):
    changes = of(GRID, "dqn", 2, 60, replay={"capacity": 24}, **ADAPTIVE)
    job = played(changes, 23)
    parsed = KINDS["rl"].parse_config({"seed": 7, **changes})
    path = tmp_path / "file.pt"
    write(export_rl(freeze(job.state_dict()), parsed, saved_at=1.0), path)
    state = import_rl(read_rl(path)[0], parsed).state
    other = KINDS["rl"].make_job(parsed)
    other.load_state_dict({n: part for n, part in state.items() if n != "random"})
    assert other.step == 23 and other.population.learner.updates == job.population.learner.updates
    numbers = torch.arange(46 - 24, 46)
    mine, theirs = (each.population.replay.at(numbers) for each in (job, other))
    assert torch.equal(mine.observations, theirs.observations)
    assert other.population.curriculum.stages == job.population.curriculum.stages


def test_names_of_files_sort_by_number_in_this_program(tmp_path):
    file = read_rl(original("rl", tmp_path))[0]
    assert file.name == "checkpoint_ep00001.pt"


def checked(state, tmp_path, step=23):
    """Return what `checkpoints verify` finds wrong in a checkpoint of ours."""
    store = CheckpointStore(tmp_path, identity={})
    return verify(store.write(CheckpointType.PERIODIC, step=step, state=freeze(state)).path)


@pytest.mark.slow
def test_a_checkpoint_of_agents_whose_parts_disagree_is_found(tmp_path):
    state = played(CONFIGS["prioritized"][0], 23).state_dict()
    assert checked(state, tmp_path).passed
    for place, value in {"next_episode": 99, "environment_steps": 45, "updates": 1}.items():
        wrong = {**state, "state": {**state["state"], place: value}}
        report = checked(wrong, tmp_path)
        assert not report.passed and place in str(report)
