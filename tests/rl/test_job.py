"""The job beside the contract: counting episodes, states that do not fit, and known traps."""

import copy
import json

import pytest
import torch

from tests.engines.contract import Case, ScriptedSupervisor, attempt
from tests.rl.cases import ADAPTIVE, ADVERSARIAL, PRIORITIZED
from tests.rl.populations import CARTPOLE, GRID, job_of, of, played, resumed
from trainops.kind import KINDS
from trainops.kinds.rl.adapting import adapt
from trainops.kinds.rl.evaluation import Evaluation
from trainops.runtime.checkpoint.snapshot import freeze, tensors_in
from trainops.runtime.checkpoint.store import CheckpointPolicy
from trainops.runtime.errors import ConfigError, IncompatibleState, InputError
from trainops.runtime.loop import Failed

DQN = of(CARTPOLE, "dqn", 2, 60)


def episodes_of(job):
    log = job.population.episodes.log
    return [log.column(name).tolist() for name in ("agent", "step", "length", "return")]


def changed(state, path, value):
    found = copy.deepcopy(state)
    owner = found
    for key in path[:-1]:
        owner = owner[key]
    owner[path[-1]] = value
    return found


# Episodes are counted, never guessed.


def test_completed_and_next_episode_are_distinguished_from_open_ones():
    job = played(DQN, 5)
    plain = job.state_dict()["state"]
    assert plain["episodes_completed"] == plain["next_episode"] == 0
    assert job.population.episodes.lengths.tolist() == [5, 5], "two are open"
    while not job.population.episodes.completed:
        job.advance()
    plain = job.state_dict()["state"]
    assert plain["episodes_completed"] == plain["next_episode"] == len(episodes_of(job)[0])


@pytest.mark.slow
def test_an_extended_run_loses_no_episode():
    whole, short = played(DQN, 60), played({**DQN, "environment_steps": 62}, 31)
    assert short.step == short.total_steps
    longer = job_of(DQN)
    engine = KINDS["rl"]
    before = engine.parse_config({"seed": 7, **DQN, "environment_steps": 62})
    after = engine.parse_config({"seed": 7, **DQN})
    after.require_forkable(before)
    longer.load_state_dict(adapt(freeze(short.state_dict()), before, after))
    while longer.step < 60:
        longer.advance()
    assert episodes_of(longer) == episodes_of(whole)


@pytest.mark.slow
def test_an_episode_that_a_stop_cuts_is_neither_logged_nor_reported_to_the_curriculum():
    config = of(GRID, "dqn", 2, 40, **ADAPTIVE)
    for steps in range(1, 12):
        job = played(config, steps)
        other = resumed(job, config)
        assert episodes_of(other) == episodes_of(job)
        counted = sum(tracker.episodes for tracker in other.population.curriculum.trackers)
        assert counted <= other.population.episodes.completed


def test_a_run_ends_after_n_episodes():
    job = job_of({**DQN, "episodes": 3})
    while job.step < job.total_steps:
        job.advance()
    assert 3 <= job.population.episodes.completed <= 4 and job.step < 60


def test_a_checkpoint_is_due_after_n_episodes():
    job = job_of({**DQN, "checkpoint": {"every_episodes": 2}})
    policy = CheckpointPolicy(every_seconds=1e9)
    policy.follow(job.milestones)
    policy.saved(0)
    due = []
    while job.step < job.total_steps:
        job.advance()
        if policy.is_due(job.step):
            due.append(job.population.episodes.completed)
            policy.saved(job.step)
    assert [each // 2 for each in due] == list(range(1, len(due) + 1)) and len(due) > 2


@pytest.mark.slow
def test_epsilon_is_never_stepped_twice():
    config = of(CARTPOLE, "dqn", 1, 60, exploration={"schedule": "exponential", "decay": 0.5})
    whole, expected = job_of(config), []
    while whole.step < 60:
        whole.advance()
        expected.append(whole.population.epsilon)
    job, found = job_of(config), []
    while job.step < 60:
        job = resumed(job, config)
        job.advance()
        found.append(job.population.epsilon)
    assert found == expected and expected[-1] == max(0.05, 0.5**whole.population.episodes.completed)


def test_open_recurrent_episodes_are_saved_open_with_their_memory():
    config = of(GRID, "recurrent_dqn", 3, 40)
    job = played(config, 4)
    state = freeze(job.state_dict())
    assert state["memory"]["h"].shape == (1, 3, 5) and state["memory"]["h"].abs().sum() > 0
    other = resumed(job, config)
    assert torch.equal(other.population.learner.memory[0], state["memory"]["h"])
    assert other.population.episodes.lengths.tolist() == [4, 4, 4]


@pytest.mark.slow
def test_open_episodes_are_flushed_where_that_is_wished():
    config = of(GRID, "recurrent_dqn", 3, 40, open_episodes="flushed")
    job = played(config, 4)
    assert not job.inexact and job.population.episodes.lengths.tolist() == [4, 4, 4]
    other = resumed(job, config)
    assert "flushed" in other.inexact["environment"]
    assert other.population.episodes.lengths.tolist() == [0, 0, 0]
    assert other.population.episodes.completed == 0, "a cut episode is never logged as a full one"
    assert other.population.learner.memory[0].abs().sum() == 0
    ring = other.population.replay
    assert (
        len(ring) == 12 and ring.at(torch.arange(12)).truncated.tolist() == [False] * 9 + [True] * 3
    )
    again = resumed(job, config)
    for _ in range(20):
        other.advance(), again.advance()
    assert bits(other) == bits(again)
    assert ring.at(torch.arange(12)).truncated.sum() == 3


# What does not fit is refused before anything is touched.


def bits(job):
    state = freeze(job.state_dict())
    streams = {name: state.pop(name) for name in ("replay", "episodes")}
    tensors = [tensor.float().numpy().tobytes() for tensor in tensors_in(state)]
    rows = [stream.column(name).numpy().tobytes() for stream in streams.values()
            for name in stream.columns]  # fmt: skip
    return tensors, rows, json.dumps(state["state"])


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("state", "provenance", "version"), 2, "version is 2; 3 is expected.*retrain"),
        (("state", "provenance", "substrate"), {"type": "Grid2D", "position_dim": 2},
         "the substrate: .*Grid2D.*in the state, .*gymnasium:CartPole-v1.*here"),
        (("state", "provenance", "observation_dim"), 5, "observation dimension: 5 .*, 4 here"),
        (("state", "provenance", "action_dim"), 3, "the action dimension: 3 in the state, 2 here"),
        (("state", "provenance", "observation_field_ids"), ["x"], "the fields of observations"),
        (("state", "epsilon"), 0.123, "epsilon is 0.123, but by the rest"),
        (("state", "next_episode"), 7, "next_episode 7; 0 are logged"),
        (("state", "step"), 3, "environment_steps is 12, but by the rest of the state 6"),
        (("state", "metric"), -1.0, "metric is -1.0, not that of the newest"),
        (("learning", "capacity"), 99, r"replay.capacity is 99 .* a fork takes"),
        (("model", "0.weight"), torch.zeros(2, 2), "cannot be read.*size mismatch"),
        (("environment", "ages"), torch.zeros(5), "5 environments, here 2"),
        (("open_episodes", "gained"), torch.zeros(2), "cannot be read"),
        (("replay",), 1, "no stream of transitions"),
        (("episodes",), 1, "no stream of episodes"),
        (("curriculum", "stages"), [4], "cannot be read"),
        (("memory",), {}, "the state has memory besides"),
    ],
)  # fmt: skip
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(path, value, problem):
    state = freeze(played(DQN, 6).state_dict())
    job = played(DQN, 3)
    before = bits(job)
    with pytest.raises(IncompatibleState, match=problem):
        job.load_state_dict(changed(state, path, value))
    assert bits(job) == before


def test_checks_come_in_their_order():
    state = freeze(played(DQN, 6).state_dict())
    wrong = {"version": 1, "substrate": {}, "observation_dim": 1, "action_dim": 1,
             "config_hash": "x"}  # fmt: skip
    right = dict(state["state"]["provenance"])
    for name, problem in {
        "version": "version",
        "substrate": "substrate",
        "observation_dim": "observation dim",
        "action_dim": "action dim",
    }.items():
        state["state"]["provenance"] = {**right, **wrong}
        with pytest.raises(IncompatibleState, match=problem):
            job_of(DQN).load_state_dict(state)
        wrong[name] = right[name]


def test_a_changed_config_is_a_warning_that_names_the_keys():
    job = played(DQN, 6)
    other = resumed(job, {**DQN, "discount": 0.5, "dqn": {**DQN["dqn"], "batch_size": 9}})
    note = other.inexact["config"]
    assert "discount was 0.99, is 0.5" in note and "dqn.batch_size was 4, is 9" in note
    assert "fork" in note
    assert not resumed(job, DQN).inexact


@pytest.mark.slow
def test_a_smaller_ring_is_refused_whole_and_a_fork_migrates_it():
    engine = KINDS["rl"]
    config = of(GRID, "dqn", 4, 40, **PRIORITIZED)
    state = freeze(played(config, 20).state_dict())
    for capacity in (12, 24, 60):
        small = {**config, "replay": {**config["replay"], "capacity": capacity}}
        job = job_of(small)
        with pytest.raises(IncompatibleState, match="capacity"):
            job.load_state_dict(state)
        assert job.step == 0 and not len(job.population.replay)
        before, after = (engine.parse_config({"seed": 7, **each}) for each in (config, small))
        after.require_forkable(before)
        job.load_state_dict(adapt(state, before, after))
        assert_same_newest_rows(job.population.learner, state, capacity)
        again = resumed(job, small)
        for _ in range(20):
            job.advance(), again.advance()
        assert bits(job) == bits(again)


def assert_same_newest_rows(learner, state, capacity):
    replay, old_slots = learner.replay, 40
    kept = min(capacity, old_slots)
    numbers = torch.arange(80 - kept, 80)
    stream = state["replay"].column("transition")
    assert torch.equal(replay.rows[numbers % capacity], stream[-kept:])
    assert torch.equal(
        learner.priorities.saved()[numbers % capacity], state["priorities"][numbers % old_slots]
    )
    assert len(replay) == kept


def test_what_a_fork_may_not_change_is_named():
    engine = KINDS["rl"]
    before = engine.parse_config(of(CARTPOLE, "dqn", 2, 60))
    for config, field in [
        (of(CARTPOLE, "ppo", 2, 60), "algorithm"),
        (of(CARTPOLE, "dqn", 4, 60), "agents"),
        (of(CARTPOLE, "dqn", 2, 60, replay={"prioritized": True}), "replay.prioritized"),
    ]:
        with pytest.raises(ConfigError) as refused:
            engine.parse_config(config).require_forkable(before)
        assert field in refused.value.errors


# What is saved is as large as what it says.


def test_no_tensor_of_a_state_drags_a_larger_storage_along():
    frozen = freeze(played(of(GRID, "dqn", 8, 30, **PRIORITIZED), 20).state_dict())
    for tensor in tensors_in(frozen):
        assert tensor.untyped_storage().nbytes() <= max(4096, tensor.nbytes)


@pytest.mark.slow
def test_checkpoints_write_only_new_transitions(tmp_path):
    config = of(
        GRID, "dqn", 64, 1000, replay={"capacity": 40_000}, evaluation={"every_steps": 9999}
    )
    case = Case("rl", "bytes", config, stops=())
    supervisor = ScriptedSupervisor(at=300)
    attempt(case, tmp_path, supervisor, every_steps=30)
    written = [sum(each.size_bytes for each in checkpoint.artifacts
                   if not each.home and each.name.startswith("replay"))
               for checkpoint in supervisor.checkpoints]  # fmt: skip
    row_bytes = 4 * played(config, 1).population.replay.layout.width
    assert len(written) > 10
    # Each row twice, when it is new and when 16 segments move into one file, and the open segment.
    assert sum(written) < 2 * 300 * 64 * row_bytes + len(written) * 2**18


def test_a_run_that_fails_says_so(tmp_path):
    case = Case("rl", "fails", {**DQN, "learning_rate": 10.0, "max_grad_norm": None,
                                "discount": 1.0}, stops=())  # fmt: skip
    supervisor = ScriptedSupervisor()
    broken = torch.nn.Linear.forward
    try:
        torch.nn.Linear.forward = lambda self, x: broken(self, x) * float("inf")
        outcome = attempt(case, tmp_path, supervisor)
    finally:
        torch.nn.Linear.forward = broken
    assert isinstance(outcome, Failed) and "nan" in str(outcome.error)


# Evaluations.


@pytest.mark.slow
def test_evaluations_change_nothing_in_training():
    often = of(GRID, "recurrent_dqn", 2, 30, evaluation={"every_steps": 2})
    never = of(GRID, "recurrent_dqn", 2, 30, evaluation={"every_steps": 10_000})
    one, other = played(often, 29), played(never, 29)
    for name in ("model", "memory", "learning"):
        assert all(map(torch.equal, tensors_in(one.state_dict()[name]),
                       tensors_in(other.state_dict()[name])))  # fmt: skip
    assert episodes_of(one) == episodes_of(other)


def test_evaluations_begin_alike_and_the_best_network_is_kept():
    job = job_of(of(GRID, "dqn", 2, 40))
    begun, returns, models = [], [], []
    while job.step < job.total_steps:
        metrics = job.advance()
        if "evaluation_return" in metrics:
            begun.append(job.newest["recording"]["frames"]["position"][0])
            returns.append(metrics["evaluation_return"])
            models.append(
                {n: t.clone() for n, t in job.population.learner.online.state_dict().items()}
            )
    assert len(returns) > 3 and all(each == begun[0] for each in begun)
    best = returns.index(max(returns))
    assert job.best["return"] == max(returns)
    assert all(torch.equal(job.best_model[name], models[best][name]) for name in job.best_model)


def test_a_return_that_is_not_finite_is_not_kept_as_the_best(monkeypatch):
    returns = iter([float("nan"), 2.0, float("nan"), 1.0, 3.0])
    monkeypatch.setattr(Evaluation, "mean_return", property(lambda _: next(returns, 0.0)))
    job, best = job_of(of(GRID, "dqn", 2, 40)), []
    while job.step < job.total_steps:
        if "evaluation_return" in job.advance():
            best.append(job.best["return"])
    assert best[1:5] == [2.0, 2.0, 2.0, 3.0]


def test_a_recording_can_be_played_back():
    job = played(of(GRID, "dqn", 2, 12, evaluation={"max_frames": 50}), 6)
    recording = json.loads(json.dumps(job.newest["recording"]))
    frames = recording["frames"]
    assert len({len(column) for column in frames.values()}) == 1
    assert len(frames["position"]) == recording["length"] + 1
    assert frames["action"][0] is None and recording["world"]["size"] == [3, 3]
    assert len(recording["layout"]) == 2
    assert sum(frames["reward"]) == pytest.approx(recording["return"], abs=1e-3)


def test_the_result_is_plain_json():
    job = job_of(of(GRID, "dqn", 2, 12, **ADVERSARIAL))
    while job.step < job.total_steps:
        job.advance()
    result = json.loads(json.dumps(dict(job.result()), allow_nan=False))
    assert result["episodes"] == job.population.episodes.completed
    assert sum(result["tallies"]["visits"]) == 24


# Configs.


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"replay": {"capacity": 3}, "agents": 4}, "replay.capacity"),
        ({"algorithm": "ppo", "replay": {"prioritized": True}}, "replay.prioritized"),
        (
            {
                "algorithm": "recurrent_dqn",
                "dqn": {"n_step": 5, "sequence_length": 8, "burn_in": 8},
                "replay": {"capacity": 19},
            },
            "replay.capacity",
        ),
        ({"algorithm": "ppo", "ppo": {"batch_size": 999}}, "ppo.batch_size"),
        ({"curriculum": {"rule": "adaptive"}}, "curriculum.stages"),
        ({"network": {"hidden_sizes": [0]}}, "network.hidden_sizes"),
        ({"parameters": {"id": "os:CartPole-v1"}}, "parameters.id"),
    ],
)
def test_what_cannot_be_had_together_is_refused_at_once(config, field):
    with pytest.raises(ConfigError) as refused:
        KINDS["rl"].parse_config({"recipe": "gymnasium", **config})
    assert field in refused.value.errors


def test_gymnasium_ids_may_stand_in_the_recipe():
    config = KINDS["rl"].parse_config({"recipe": "gymnasium:FrozenLake-v1"})
    assert config.recipe == "gymnasium" and config.parameters["id"] == "FrozenLake-v1"


@pytest.mark.parametrize(
    ("name", "problem"),
    [("Pendulum-v1", "Box actions; allowed: Discrete"), ("NoSuch-v9", "NoSuch")],
)
def test_an_environment_that_cannot_be_used_is_refused(name, problem):
    with pytest.raises(InputError, match=problem):
        job_of({"recipe": f"gymnasium:{name}"})
