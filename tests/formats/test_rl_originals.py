"""What the other tool needs of a file of agents: how they explore, and rings that it can go on."""

from dataclasses import replace
from itertools import product

import pytest
import torch

from tests.formats.originals import SOURCES_OF_AGENTS as SOURCES
from tests.formats.originals import key_tree, original, tree
from tests.formats.test_rl_exchange import CONFIGS, config, taken_in
from tests.rl.cases import GRID, NOVELTY, of
from tests.rl.populations import played
from tests.thinning import quick_some
from trainops.files.verify import write_verified
from trainops.kind import KINDS
from trainops.kinds.rl.adapting import adapt
from trainops.kinds.rl.files.exchange import read_rl
from trainops.kinds.rl.files.exporting import export_rl
from trainops.kinds.rl.files.importing import import_rl
from trainops.kinds.rl.files.replay import EPISODE, SequentialReplay
from trainops.runtime.checkpoint.snapshot import freeze

pytestmark = pytest.mark.slow

NINE = list(tree("rl")["population_state"]["exploration_state"])


def parsed(changes):
    return KINDS["rl"].parse_config({"seed": 7, **changes})


def gone_on(imported, wanted, steps):
    """Return a job that loaded an imported state and went on."""
    job = KINDS["rl"].make_job(wanted)
    job.load_state_dict({n: part for n, part in imported.state.items() if n != "random"})
    for _ in range(steps):
        job.advance()
    return job


def written(job, wanted, path):
    """Return the file as it is read back."""
    write_verified(export_rl(freeze(job.state_dict()), wanted, saved_at=1.0), path)
    return read_rl(path)[0]


def ring(job):
    """Return the rows that a ring holds, the oldest first."""
    replay = job.population.replay
    return replay.rows[torch.arange(replay.first, replay.count) % replay.slots]


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_how_agents_explore_is_kept_from_a_file_to_its_export(source, tmp_path):
    given = read_rl(original(source, tmp_path))[0].population.exploration
    wanted = config()
    job = gone_on(taken_in(original(source, tmp_path)), wanted, steps=130)
    again = gone_on_from_checkpoint(job, wanted)
    found = written(again, wanted, tmp_path / "ours.pt").population.exploration
    assert list(found) == NINE and key_tree(found) == key_tree(_without_numpy(given, found))
    for name in ("fixed_network", "predictor_network"):
        for key, weights in given["rnd_state"][name].items():
            assert torch.equal(found["rnd_state"][name][key], weights)
    assert found["rnd_state"]["epsilon"] == again.population.epsilon
    lengths = [each for each in again.population.episodes.log.column("length").tolist() if each]
    assert lengths and found["survival_history"] == [*given["survival_history"], *lengths]


def gone_on_from_checkpoint(job, wanted):
    other = KINDS["rl"].make_job(wanted)
    other.load_state_dict(freeze(job.state_dict()))
    return other


def _without_numpy(given, found):
    """Return the file's state with as many episodes as there are now."""
    return {**given, "survival_history": found["survival_history"]}


@pytest.mark.parametrize("more", [{}, NOVELTY])
def test_a_run_of_ours_gets_the_nine_keys_with_networks_that_the_other_tool_loads(more, tmp_path):
    changes = of(GRID, "dqn", 2, 60, **more)
    file = written(played(changes, 23), parsed(changes), tmp_path / "ours.pt")
    found = dict(file.population.exploration)
    assert list(found)[:9] and set(NINE) <= found.keys()
    assert ("novelty" in found) == bool(more)
    rnd, embedded = found["rnd_state"], parsed(changes).novelty.embedding
    assert list(rnd) == list(tree("rl")["population_state"]["exploration_state"]["rnd_state"])
    sizes = [file.observation_dim, 256, 128, embedded]
    for name in ("fixed_network", "predictor_network"):
        layers = [each for key, each in rnd[name].items() if key.endswith("weight")]
        network = torch.nn.Sequential(
            torch.nn.Linear(sizes[0], sizes[1]), torch.nn.ReLU(),
            torch.nn.Linear(sizes[1], sizes[2]), torch.nn.ReLU(),
            torch.nn.Linear(sizes[2], sizes[3]),
        )  # fmt: skip
        weights = {k.removeprefix("net."): v for k, v in rnd[name].items() if k != "active_mask"}
        network.load_state_dict(weights)
        for layer, size in zip(layers, sizes, strict=False):
            assert 0 < float(layer.abs().max()) <= size**-0.5
    torch.optim.Adam(network.parameters()).load_state_dict(rnd["optimizer"])
    assert not torch.equal(
        rnd["fixed_network"]["net.0.bias"], rnd["predictor_network"]["net.0.bias"]
    )
    assert (rnd["epsilon"], rnd["obs_dim"]) == (file.epsilon, file.observation_dim)


def test_our_own_novelty_comes_back(tmp_path):
    wanted = parsed(of(GRID, "dqn", 2, 60, **NOVELTY))
    job = played(of(GRID, "dqn", 2, 60, **NOVELTY), 23)
    written(job, wanted, tmp_path / "ours.pt")
    imported = import_rl(read_rl(tmp_path / "ours.pt")[0], wanted)
    assert {item.part: item for item in imported.receipt.items}["novelty"].exact
    mine, theirs = job.population.novelty.each[0], imported.state["novelty"]
    assert torch.equal(mine.predictor.state_dict()["0.weight"], theirs["predictor"]["0.weight"])


def test_an_incomplete_state_of_exploration_is_reported_and_replaced(tmp_path):
    content = tree("rl")
    del content["population_state"]["exploration_state"]["rnd_state"]["embed_dim"]
    path = tmp_path / "rl.pt"
    torch.save(content, path)
    imported = taken_in(path)
    (item,) = (each for each in imported.receipt.items if each.part == "exploration")
    assert not item.exact and "exports get a new one" in item.note
    file = written(gone_on(imported, config(), 5), config(), tmp_path / "ours.pt")
    assert list(file.population.exploration) == NINE


def test_stages_are_counted_from_1_as_the_other_tool_counts_them(tmp_path):
    changes, _ = CONFIGS["plain"]
    job = played(changes, 23)
    job.population.curriculum.stages = [0, 2]
    file = written(job, parsed(changes), tmp_path / "ours.pt")
    assert file.curriculum["agent_stages"].tolist() == [1, 3]
    state = import_rl(file, parsed(changes)).state
    assert state["state"]["stages"] == [0, 2]
    without = parsed(of(GRID, "dqn", 2, 60))
    plain = written(played(of(GRID, "dqn", 2, 60), 3), without, tmp_path / "none.pt")
    assert plain.curriculum["agent_stages"].tolist() == [1, 1]


@pytest.mark.parametrize("name", ["plain", "prioritized"])
@pytest.mark.parametrize("steps", [4, 23])
def test_a_ring_comes_back_bit_for_bit_with_its_priorities(name, steps, tmp_path):
    wanted = parsed(CONFIGS[name][0])
    job = played(CONFIGS[name][0], steps)
    imported = import_rl(written(job, wanted, tmp_path / "ours.pt"), wanted)
    other = gone_on(imported, wanted, 0)
    assert other.step == steps and torch.equal(ring(job)[:-2], ring(other)[:-2])
    assert torch.equal(ring(job)[-2:, :-13], ring(other)[-2:, :-13]), "but they end there"
    if name == "prioritized":
        mine, theirs = (each.population.learner.priorities for each in (job, other))
        assert torch.equal(mine.values, theirs.values)
        assert theirs.largest == pytest.approx(mine.largest, rel=1e-6)
        assert {i.part: i.exact for i in imported.receipt.items}["priorities"]


def test_priorities_of_a_file_are_errors_and_ours_their_power(tmp_path):
    wanted = parsed(CONFIGS["prioritized"][0])
    job = played(CONFIGS["prioritized"][0], 23)
    held = written(job, wanted, tmp_path / "ours.pt").population.replay
    count, slots = job.population.replay.count, job.population.replay.slots
    assert held.position == count % slots < held.capacity
    own = job.population.learner.priorities.saved().float()
    found = torch.from_numpy(held.priorities).pow(wanted.replay.alpha)
    torch.testing.assert_close(found, own, rtol=1e-5, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plain", "prioritized"])
def test_a_larger_ring_after_a_fork_is_not_full(name, tmp_path):
    before = CONFIGS[name][0]
    after = {**before, "replay": {**before["replay"], "capacity": 200}}
    job = played(before, 23)
    held = len(job.population.replay)
    state = adapt(freeze(job.state_dict()), parsed(before), parsed(after))
    forked = KINDS["rl"].make_job(parsed(after))
    forked.load_state_dict(state)
    for _ in range(5):
        forked.advance()
    file = written(forked, parsed(after), tmp_path / "ours.pt")
    replay = file.population.replay
    assert (replay.size, replay.position, replay.capacity) == (held + 10, held + 10, 200)
    if name == "prioritized":
        assert (replay.priorities[: replay.size] > 0).all()
        assert not replay.priorities[replay.size :].any()
    again = gone_on(import_rl(file, parsed(after)), parsed(after), 0)
    assert again.step == 28 and torch.equal(ring(forked)[:-2], ring(again)[:-2])


@pytest.mark.slow
def test_a_ring_that_was_left_behind_is_exported_empty(tmp_path):
    imported = taken_in(original("rl", tmp_path), agents=7)
    wanted = config(agents=7)
    replay = written(gone_on(imported, wanted, 0), wanted, tmp_path / "ours.pt").population.replay
    assert (replay.size, replay.position) == (0, 0)
    replay = written(gone_on(imported, wanted, 3), wanted, tmp_path / "more.pt").population.replay
    assert (replay.size, replay.position) == (21, 21)


@pytest.mark.parametrize(
    ("name", "steps"), quick_some([*product(["recurrent", "sequences"], [3, 23, 58])], every=4)
)
def test_episodes_of_recurrent_agents_come_back_with_those_that_are_open(name, steps, tmp_path):
    wanted = parsed(CONFIGS[name][0])
    job = played(CONFIGS[name][0], steps)
    file = written(job, wanted, tmp_path / "ours.pt")
    imported = import_rl(file, wanted)
    other = gone_on(imported, wanted, 0)
    assert other.step == steps and torch.equal(ring(job)[:-2], ring(other)[:-2])
    ends = 2 * job.population.replay.layout.observed + 3
    assert bool(ring(other)[-2:, ends : ends + 2].any(1).all()), "open episodes end there"
    items = {item.part: item for item in imported.receipt.items}
    assert items["replay"].exact
    is_open = bool(job.population.episodes.lengths.any())
    assert ("open episodes" in items) == is_open
    for _ in range(2):
        other.advance()


@pytest.mark.slow
def test_episodes_without_what_they_led_to_lose_the_step_that_was_cut(tmp_path):
    """As the other tool writes them: by whom is not said, nor what a last step led to."""
    wanted = parsed(of(GRID, "recurrent_dqn", 1, 60))
    job = played(of(GRID, "recurrent_dqn", 1, 60), 23)
    content = _bare(written(job, wanted, tmp_path / "ours.pt"))
    imported = import_rl(content, wanted)
    other = gone_on(imported, wanted, 0)
    ends = job.population.replay.layout.observed * 2 + 3
    cut = (ring(job)[:, ends] == 0) & (ring(job)[:, ends + 1] == 1)
    cut[-1] |= not bool(ring(job)[-1, ends])
    assert len(ring(other)) == 23 - int(cut.sum()) and other.step == 23
    observed = job.population.replay.layout.observed
    assert torch.equal(ring(other)[:, :observed], ring(job)[~cut][:, :observed])
    item = next(each for each in imported.receipt.items if each.part == "replay")
    assert item.restored and not item.exact and "no next observation" in item.note


def _bare(file):
    kept = (*EPISODE, "rewards", "rewards_extrinsic", "rewards_intrinsic")
    population = file.population
    bare = tuple(
        {n: e for n, e in each.items() if n in kept} for each in population.replay.episodes
    )
    still = tuple({n: e for n, e in each.items() if n in kept}
                  for each in population.current_episodes)  # fmt: skip
    replay = SequentialReplay(bare, population.replay.capacity)
    return replace(file, population=replace(population, replay=replay, current_episodes=still))


def test_a_ring_of_priorities_is_taken_over_by_a_config_without_them(tmp_path):
    given = CONFIGS["prioritized"][0]
    plain = {**given, "replay": {"capacity": 40}}
    file = written(played(given, 23), parsed(given), tmp_path / "ours.pt")
    imported = import_rl(file, parsed(plain))
    items = {item.part: item for item in imported.receipt.items}
    assert items["replay"].exact and not items["priorities"].exact
    assert len(ring(gone_on(imported, parsed(plain), 0))) == 40
