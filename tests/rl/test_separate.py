"""A network for each agent: nothing that one does or learns reaches another."""

import json

import pytest
import torch

from tests.rl.cases import ADAPTIVE, NOVELTY, SEPARATE, SMALL
from tests.rl.populations import CARTPOLE, GRID, job_of, of, played
from trainops.kind import KINDS
from trainops.kinds.rl.adapting import adapt
from trainops.kinds.rl.learners.separate import alone, state_of, weights_of
from trainops.runtime.checkpoint.snapshot import freeze, tensors_in
from trainops.runtime.errors import ConfigError, IncompatibleState

pytestmark = pytest.mark.slow

RING = {"replay": {"capacity": 30, "prioritized": True}}
LEARNERS = {
    "dqn": of(GRID, "dqn", 3, 40, **RING, **SEPARATE),
    "recurrent": of(GRID, "recurrent_dqn", 3, 40, **SEPARATE, dqn={"n_step": 2}),
    "ppo": of(CARTPOLE, "ppo", 3, 40, **SEPARATE),
}


def same(one, other):
    return all(map(torch.equal, tensors_in(one), tensors_in(other)))


@pytest.mark.parametrize("name", LEARNERS)
def test_agents_differ_from_the_beginning_and_learn_apart(name):
    job = played(LEARNERS[name], 20)
    state = freeze(job.state_dict())
    of_agents = [weights_of(state["model"], agent) for agent in range(3)]
    assert of_agents[0].keys() == of_agents[2].keys()
    assert not same(of_agents[0], of_agents[1]) and not same(of_agents[1], of_agents[2])
    updates = [each["updates"] for each in state["learning"]["agents"].values()]
    assert updates[0] > 0 and sum(updates) == state["learning"]["updates"]


@pytest.mark.parametrize("name", LEARNERS)
def test_an_agent_never_draws_a_row_of_another(name):
    """Where others' rows are not numbers, its own weights still are."""
    job = played(LEARNERS[name], 19)
    rows = job.population.replay.rows.view(-1, 3, job.population.replay.layout.width)
    rows[:, [0, 2]] = float("nan")
    learner = job.population.learner.learners[1]
    for step in range(20, 41, 5):
        assert all(torch.isfinite(loss) for loss in learner.learn(step, 3 * step, 0.0))
    assert all(torch.isfinite(each).all() for each in tensors_in(learner.state_dict()["model"]))


@pytest.mark.slow
def test_what_others_do_changes_nothing_of_an_agents_network():
    """Its rows, its draws and its updates follow from its own steps alone."""
    quiet, disturbed = (played(LEARNERS["dqn"], 12) for _ in range(2))
    ring = disturbed.population.replay
    rows = ring.rows.view(-1, 3, ring.layout.width)
    rows[:, 2, : ring.layout.observed] += 1.0
    for job in (quiet, disturbed):
        for step in (14, 16, 18):
            job.population.learner.learn(step, 3 * step, 0.0)
    one, other = (
        [state_of(freeze(job.state_dict()), agent, 3) for agent in range(3)]
        for job in (quiet, disturbed)
    )
    for agent, is_same in ((0, True), (1, True), (2, False)):
        assert same(one[agent]["model"], other[agent]["model"]) == is_same
        assert same(one[agent]["optimizer"], other[agent]["optimizer"]) == is_same
        assert same([one[agent]["priorities"]], [other[agent]["priorities"]]) == is_same


def test_an_agent_keeps_its_share_of_the_ring():
    job = played(LEARNERS["dqn"], 25)
    learner = job.population.learner.learners[2]
    ring = job.population.replay
    assert (ring.slots, len(ring), learner.replay.slots, len(learner.replay)) == (30, 30, 10, 10)
    numbers = torch.arange(15, 25)
    mine, theirs = learner.replay.at(numbers), ring.at(numbers * 3 + 2)
    assert torch.equal(mine.observations, theirs.observations)
    assert alone(job.config, 1).seed != alone(job.config, 2).seed


def test_novelty_is_what_is_new_to_the_agent_itself():
    job = played(of(GRID, "dqn", 3, 40, **SEPARATE, **NOVELTY), 20)
    fixed = [job.state_dict()["novelty"][str(agent)]["fixed"] for agent in range(3)]
    assert not same(fixed[0], fixed[1])
    seen = [each.seen.count.item() for each in job.population.novelty.each]
    assert seen == [20, 20, 20]


def test_each_agent_is_evaluated_by_its_own_network_from_the_same_beginnings():
    job = job_of(of(GRID, "dqn", 3, 12, **SEPARATE))
    metrics = {}
    while job.step < job.total_steps:
        metrics |= job.advance()
    returns = job.newest["returns"]
    assert len(returns) == 3 and metrics["evaluation_return"] == sum(returns) / 3
    assert metrics["evaluation_return_best"] == max(returns) == returns[job.newest["agent"]]
    result = json.loads(json.dumps(dict(job.result()), allow_nan=False))
    completed = [each["episodes"] for each in result["agents"]]
    assert sum(completed) == result["episodes"] and len(completed) == 3
    log = job.population.episodes.log
    mine = log.column("return")[log.column("agent") == 1]
    assert result["agents"][1]["return_mean"] == pytest.approx(float(mine.mean()))


@pytest.mark.slow
def test_stages_are_each_agents_own():
    job = played(of(GRID, "recurrent_dqn", 3, 60, **SEPARATE, **ADAPTIVE), 50)
    episodes = [tracker.episodes for tracker in job.population.curriculum.trackers]
    assert len(episodes) == len(job.population.curriculum.stages) == 3


def test_a_fork_takes_each_agents_newest_rows_over():
    engine, config = KINDS["rl"], LEARNERS["dqn"]
    state = freeze(played(config, 20).state_dict())
    small = {**config, "replay": {**config["replay"], "capacity": 12}}
    with pytest.raises(IncompatibleState, match="capacity"):
        job_of(small).load_state_dict(state)
    before, after = (engine.parse_config({"seed": 7, **each}) for each in (config, small))
    after.require_forkable(before)
    job = job_of(small)
    job.load_state_dict(adapt(state, before, after))
    for agent in range(3):
        learner, numbers = job.population.learner.learners[agent], torch.arange(16, 20)
        was = state_of(state, agent, 3)["priorities"][numbers % 10]
        assert torch.equal(learner.priorities.saved()[numbers % 4], was)


@pytest.mark.parametrize(
    ("config", "field", "problem"),
    [
        ({"agents": 257}, "agents", "at most 256"),
        ({"agents": 8, "algorithm": "ppo", "ppo": {**SMALL["ppo"], "batch_size": 6}},
         "ppo.batch_size", "at most rollout_steps, 5"),
        ({"population": {"networks": "some"}}, "population.networks", "shared"),
    ],
)  # fmt: skip
def test_what_separate_networks_cannot_be_is_refused(config, field, problem):
    with pytest.raises(ConfigError) as refused:
        KINDS["rl"].parse_config({**CARTPOLE, **SMALL, **SEPARATE, **config})
    assert problem in refused.value.errors[field]
