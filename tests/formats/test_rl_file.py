"""The format of reinforcement learning: three kinds of memory, the checks, and open episodes."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.formats.originals import key_tree, save, tree
from trainops.files.errors import DigestMismatch, InvalidFields, UnsupportedVersion
from trainops.files.verify import verify
from trainops.files.writing import write
from trainops.kinds.rl.files.exchange import read_rl
from trainops.kinds.rl.files.file import to_tree
from trainops.kinds.rl.files.replay import (
    PLAIN,
    PRIORITIZED,
    PlainReplay,
    PrioritizedReplay,
    SequentialReplay,
)
from trainops.kinds.rl.files.world_spec import WorldSpec

DIM = 66
LAYOUT = "affordance_layout"
NOTHING = dict.fromkeys(PRIORITIZED)
OTHER_DIM = {"observations": torch.ones(10, 5), "next_observations": torch.ones(10, 5)}


@pytest.fixture
def content():
    return tree("rl")


def read(content, tmp_path, world=None):
    return read_rl(save(content, tmp_path / "checkpoint_ep00001.pt"), world)


def refused(content, tmp_path):
    with pytest.raises(InvalidFields) as caught:
        read(content, tmp_path)
    return caught.value.errors


def episode(length, *rewards):
    names = rewards or ("rewards_extrinsic", "rewards_intrinsic")
    return {
        "observations": torch.ones(length, DIM),
        "actions": torch.arange(length),
        **{name: torch.full((length,), 0.5) for name in names},
        "dones": torch.tensor([False] * (length - 1) + [True]),
    }


WITHOUT_REWARDS = {
    name: each for name, each in episode(2).items() if not name.startswith("rewards")
}


def prioritized(size=10, capacity=16):
    return {
        "capacity": capacity, "alpha": 0.6, "beta": 0.4, "beta_annealing": True,
        "observations": torch.ones(size, DIM), "actions": torch.zeros(size, dtype=torch.int64),
        "rewards": torch.zeros(size), "next_observations": torch.ones(size, DIM),
        "dones": torch.zeros(size, dtype=torch.bool),
        "priorities": np.linspace(0, 1, capacity).astype(np.float32),
        "max_priority": np.float32(1.5), "position": size % capacity, "size_current": size,
    }  # fmt: skip


def sequential(*episodes, capacity=100):
    return {
        "num_transitions": sum(len(each["actions"]) for each in episodes),
        "episodes": list(episodes),
        "capacity": capacity,
    }


def with_replay(content, replay):
    content["population_state"]["replay_buffer"] = replay
    return content


def test_everything_in_it_is_there(content, tmp_path):
    file, changes = read(content, tmp_path)
    assert changes == {} and file.name == "checkpoint_ep00001.pt"
    assert (file.episode, file.substrate.type, file.substrate.position_dim) == (
        1,
        "Grid2DSubstrate",
        2,
    )
    assert (file.observation_dim, file.action_dim, file.meter_count) == (DIM, 8, 8)
    assert file.agent_ids == ("agent_0",) and file.affordances.positions == {"Bed": (1, 2)}
    assert file.population.total_steps == 240 and file.population.scheduler is None
    assert isinstance(file.population.replay, PlainReplay)
    assert (file.population.replay.size, file.population.replay.capacity) == (240, 256)
    assert file.population.current_episodes is None
    assert len(file.config_hash) == 64 and file.training_config["training"]["batch_size"] == 64


@pytest.mark.parametrize(
    ("replay", "kind"),
    [
        (prioritized(), PrioritizedReplay),
        (prioritized(size=16), PrioritizedReplay),
        (prioritized() | NOTHING | {"size_current": 0, "position": 0}, PrioritizedReplay),
        (sequential(episode(5), episode(7)), SequentialReplay),
        (sequential(), SequentialReplay),
        (sequential(episode(5, "rewards")), SequentialReplay),
        ({"size": 0, "position": 0, "capacity": 9} | dict.fromkeys(PLAIN), PlainReplay),
    ],
)  # fmt: skip
def test_each_kind_of_memory_is_read_and_written_alike(content, tmp_path, replay, kind):
    file, _ = read(with_replay(content, replay), tmp_path)
    assert isinstance(file.population.replay, kind)
    write(file, tmp_path / "ours.pt")
    assert verify(tmp_path / "ours.pt").passed
    again, _ = read_rl(tmp_path / "ours.pt")
    ours = to_tree(again)["population_state"]["replay_buffer"]
    assert sorted(key_tree(ours)) == sorted(key_tree(replay))


def test_a_ring_that_has_wrapped_may_count_on_without_limit(content, tmp_path):
    ring = content["population_state"]["replay_buffer"]
    ring |= {"capacity": 240, "position": 10_007}
    assert read(content, tmp_path)[0].population.replay.position == 10_007


def test_rewards_that_newer_files_add_are_kept(content, tmp_path):
    content["population_state"]["replay_buffer"]["rewards_shaping"] = torch.zeros(240)
    assert "rewards_shaping" in read(content, tmp_path)[0].population.replay.transitions


@pytest.mark.parametrize(
    ("replay", "where", "words"),
    [
        (
            prioritized() | {"priorities": np.zeros(3, np.float32)},
            "priorities",
            "3 for a capacity of 16",
        ),
        (prioritized() | {"priorities": np.zeros(16)}, "priorities", "an array float32"),
        (prioritized() | {"position": 3}, "size_current", "is 10 at position 3 of a ring of 16"),
        (prioritized() | {"size_current": 12, "position": 12}, "observations", "12 rows"),
        (prioritized() | {"actions": torch.zeros(10, 2)}, "actions", "1 dimensions"),
        (
            sequential(episode(5)) | {"num_transitions": 6},
            "num_transitions",
            "is 6; the episodes have 5",
        ),
        (sequential(episode(5), capacity=4), "capacity", "is 4; the episodes have 5"),
        (sequential(episode(5) | {"dones": torch.zeros(3)}), "episodes[0]", "lengths [3, 5]"),
        (sequential(WITHOUT_REWARDS), "episodes[0].rewards", "is missing"),
        ({"size": 300, "position": 300, "capacity": 256}, "size", "is 300 at position 300"),
        ({"capacity": 0}, "capacity", "at least 1"),
        ([], "", "is []; must be a dict"),
        (prioritized() | OTHER_DIM, "observations", "is 5; by the rest of the file 66"),
    ],
)
def test_a_memory_that_contradicts_itself_is_refused(content, tmp_path, replay, where, words):
    errors = refused(with_replay(content, replay), tmp_path)
    place = "population_state.replay_buffer" + (f".{where}" if where else "")
    assert words in errors[place]


def test_a_damaged_digest_comes_before_everything_else(content, tmp_path):
    content["version"] = 2
    path = save(content, tmp_path / "checkpoint_ep00001.pt")
    (tmp_path / "checkpoint_ep00001.pt.sha256").write_text("0" * 64)
    with pytest.raises(DigestMismatch):
        read_rl(path, WorldSpec(substrate_type="Other"))


def test_an_older_version_comes_before_the_substrate(content, tmp_path):
    content["version"] = 2
    with pytest.raises(UnsupportedVersion, match="retrain"):
        read(content, tmp_path, WorldSpec(substrate_type="Other"))


ELSEWHERE = {
    "substrate_type": "Grid3DSubstrate",
    "position_dim": 3,
    "observation_dim": 67,
    "action_dim": 9,
    "meter_count": 7,
}


@pytest.mark.parametrize("first", range(len(ELSEWHERE)))
def test_what_does_not_fit_the_world_is_reported_in_order_with_both_values(
    content, tmp_path, first
):
    names = list(ELSEWHERE)[first:]
    with pytest.raises(InvalidFields) as caught:
        read(content, tmp_path, WorldSpec(**{name: ELSEWHERE[name] for name in names}))
    (place, problem), *others = caught.value.errors.items()
    assert not others and place.endswith(names[0])
    assert " in the file and " in problem and problem.endswith(" here")
    if first < 4:
        assert str(ELSEWHERE[names[0]]) in problem


@pytest.mark.parametrize(
    ("ours", "place", "problem"),
    [
        ({"observation_field_uuids": ("c15b42ea6d374252", "a"), "field_names": ("cell", "here")},
         "observation_field_uuids",
         "19 in the file and 2 here; only in the file: 7766679a51.*only here: here [(]a[)]"),
        ({"meters": ("energy", "joy")}, "population_state.universe_metadata.meter_names",
         "only in the file: hygiene, .*; only here: joy$"),
        ({"affordances": ("Job",)}, "affordance_layout.positions", "^only in the file: Bed$"),
        ({"affordances": ("Bed", "Moon")}, "affordance_layout.ordering", "^only here: Moon$"),
    ],
)  # fmt: skip
def test_fields_meters_and_affordances_are_compared_by_name(
    content, tmp_path, ours, place, problem
):
    with pytest.raises(InvalidFields) as caught:
        read(content, tmp_path, WorldSpec(**ours))
    assert list(caught.value.errors) == [place]
    assert re.search(problem, caught.value.errors[place])


def test_the_same_names_in_another_order_are_another_world(content, tmp_path):
    ids = tuple(content["observation_field_uuids"])
    read(content, tmp_path, WorldSpec(observation_field_uuids=ids, affordances=("Bed", "Park")))
    with pytest.raises(InvalidFields, match="in another order here"):
        read(content, tmp_path, WorldSpec(observation_field_uuids=ids[::-1]))


def test_another_config_is_a_warning_that_names_the_changed_keys(content, tmp_path):
    config = tree("rl")["training_config"]
    config["training"]["batch_size"] = 128
    del config["environment"]["vision_range"]
    config["new"] = {"key": 1}
    world = WorldSpec(config_hash="1" * 64, training_config=config, observation_dim=DIM)
    _, changes = read(content, tmp_path, world)
    assert changes == {
        "training_config.training.batch_size": "was 64, is 128",
        "training_config.environment.vision_range": "was 3, is None",
        "training_config.new": "was None, is dict",
    }
    world = replace(world, training_config=tree("rl")["training_config"])
    assert list(read(content, tmp_path, world)[1]) == ["config_hash"]
    assert read(content, tmp_path, replace(world, config_hash=content["config_hash"]))[1] == {}


def open_episode(length):
    return {
        **{name: each for name, each in episode(length, "rewards").items() if name != "dones"},
        "dones": torch.zeros(length, dtype=torch.bool),
        "hidden_states": {"h": torch.zeros(1, 4), "c": torch.zeros(1, 4)},
    }


def recurrent(content, *open_episodes, **options):
    population = content["population_state"]
    population["replay_buffer"] = sequential(episode(5), episode(7), **options)
    population["current_episodes"] = list(open_episodes)
    population["hidden_states"] = {"h": torch.zeros(1, 1, 4), "c": torch.zeros(1, 1, 4)}
    return content


def test_open_episodes_and_hidden_states_are_kept_where_there_are_any(content, tmp_path):
    file, _ = read(recurrent(content, open_episode(3)), tmp_path)
    write(file, tmp_path / "ours.pt")
    again, _ = read_rl(tmp_path / "ours.pt")
    assert len(again.population.current_episodes[0]["actions"]) == 3
    assert again.population.hidden_states.keys() == {"h", "c"}


def test_flushing_moves_open_episodes_into_the_memory_so_that_none_is_lost(content, tmp_path):
    file, _ = read(recurrent(content, open_episode(3), open_episode(0)), tmp_path)
    population = file.population.flushed()
    assert population.current_episodes is None and population.hidden_states is None
    assert [len(each["actions"]) for each in population.replay.episodes] == [5, 7, 3]
    assert population.replay.num_transitions == 15
    flushed = population.replay.episodes[-1]
    assert flushed.keys() == population.replay.episodes[0].keys()
    assert flushed["rewards_extrinsic"].tolist() == [0.5] * 3
    assert flushed["rewards_intrinsic"].tolist() == [0.0] * 3
    write(replace(file, population=population), tmp_path / "ours.pt")
    assert verify(tmp_path / "ours.pt").passed


def test_flushing_lets_the_oldest_episodes_go_when_the_memory_is_full(content, tmp_path):
    file, _ = read(recurrent(content, open_episode(3), capacity=13), tmp_path)
    replay = file.population.flushed().replay
    assert [len(each["actions"]) for each in replay.episodes] == [7, 3]


def test_flushing_speaks_the_memorys_own_rewards(content, tmp_path):
    recurrent(content, open_episode(3))
    content["population_state"]["replay_buffer"] = sequential(episode(5, "rewards"))
    file, _ = read(content, tmp_path)
    assert file.population.flushed().replay.episodes[-1].keys() == episode(1, "rewards").keys()


def test_flushing_without_open_episodes_changes_nothing(content, tmp_path):
    file, _ = read(content, tmp_path)
    assert file.population.flushed() == file.population


@pytest.mark.parametrize(
    ("change", "where", "words"),
    [
        (lambda c: c.update(episode=-1), "episode", "at least 0"),
        (lambda c: c.update(agent_ids=["a", "b"]), "curriculum_state.agent_stages", "is 1; by"),
        (lambda c: c.update(agent_ids=[1]), "agent_ids[0]", "is 1; must be among strings"),
        (lambda c: c.update(action_dim=9), "population_state.universe_metadata.action_dim", "9"),
        (lambda c: c["affordance_layout"].update(position_dim=3), f"{LAYOUT}.position_dim", "is 3"),
        (
            lambda c: c["affordance_layout"]["positions"].update(Bed=[1]),
            f"{LAYOUT}.positions.Bed",
            "is 1",
        ),
        (
            lambda c: c["affordance_layout"]["positions"].update(Bed="x"),
            f"{LAYOUT}.positions.Bed",
            "list of integers",
        ),
        (
            lambda c: c["population_state"].update(version=1),
            "population_state.version",
            "must be 2",
        ),
        (
            lambda c: c["population_state"]["target_network"].popitem(),
            "population_state.target_network",
            "by the rest",
        ),
        (
            lambda c: c["population_state"].pop("q_network"),
            "population_state.q_network",
            "is missing",
        ),
        (lambda c: c.pop("substrate_metadata"), "substrate_metadata", "is missing"),
        (
            lambda c: c["curriculum_state"].update(agent_stages=3),
            "curriculum_state.agent_stages",
            "a tensor",
        ),
    ],
)
def test_a_wrong_field_is_named_with_what_was_found_and_what_is_allowed(
    content, tmp_path, change, where, words
):
    change(content)
    errors = refused(content, tmp_path)
    assert where in errors and words in errors[where]


@pytest.mark.parametrize(
    "name",
    [
        "brain_hash", "config_hash", "observation_dim", "action_dim", "meter_count",
        "observation_field_uuids", "drive_hash", "curriculum_state", "epsilon",
    ],
)  # fmt: skip
def test_what_the_formats_description_does_not_name_is_not_required(content, tmp_path, name):
    del content[name]
    assert read(content, tmp_path)[0].episode == 1


def test_the_documented_structure_is_read(content, tmp_path):
    """A flat layout, {id: position}, and a list of stages."""
    content["affordance_layout"] = {"Bed": (1, 2), "Job": torch.tensor([0, 1])}
    content["curriculum_state"] = {
        "agent_stages": [2], "performance_trackers": {}, "depletion_multiplier": 0.5,
    }  # fmt: skip
    path = save(content, tmp_path / "checkpoint_ep00001.pt")
    assert verify(path).passed, verify(path)
    file, _ = read_rl(path)
    assert file.affordances.positions == {"Bed": (1, 2), "Job": (0, 1)}
    assert (file.affordances.ordering, file.affordances.position_dim) == ((), 2)
    assert torch.equal(file.curriculum["agent_stages"], torch.tensor([2]))


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda c: c.update(affordance_layout={"Bed": "here"}), "affordance_layout.Bed"),
        (lambda c: c.update(affordance_layout={"Bed": (1, 2, 3)}), f"{LAYOUT}.positions.Bed"),
        (lambda c: c["curriculum_state"].update(agent_stages=[1.5]), "curriculum_state.agent_st"),
        (lambda c: c["curriculum_state"].update(agent_stages=[1, 2]), "curriculum_state.agent_st"),
    ],
)
def test_the_documented_structure_is_checked(change, place, content, tmp_path):
    change(content)
    with pytest.raises(InvalidFields) as caught:
        read(content, tmp_path)
    assert any(found.startswith(place) for found in caught.value.errors)
