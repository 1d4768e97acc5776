"""Agents learn: a corridor, a cart pole, and a frozen lake against value iteration."""

import gymnasium
import numpy as np
import pytest
import torch

from benchmarks import rl as benchmark
from tests.rl.populations import job_of
from trainops.kinds.rl.evaluation import evaluate
from trainops.kinds.rl.seeds import seed_for

pytestmark = pytest.mark.slow
QUICK = {"evaluation": {"every_steps": 200, "episodes": 3}}


def learned(config):
    job = job_of(config)
    while job.step < job.total_steps:
        job.advance()
    return job


@pytest.mark.parametrize(
    "more",
    [
        {"dqn": {"learning_starts": 100, "train_every": 1, "target_every": 50},
         "exploration": {"steps": 3000}},
        {"dqn": {"learning_starts": 100, "train_every": 1, "target_tau": 0.02, "n_step": 3,
                 "dueling": True}, "replay": {"prioritized": True}, "exploration": {"steps": 3000}},
        {"algorithm": "ppo", "ppo": {"rollout_steps": 32, "epochs": 8}, "learning_rate": 3e-3},
    ],
    ids=["dqn", "everything", "ppo"],
)  # fmt: skip
def test_agents_learn_to_walk_down_a_corridor(more):
    job = learned({"recipe": "grid_corridor", "agents": 8, "environment_steps": 6400, **QUICK,
                   "discount": 0.95, "network": {"hidden_sizes": [32]}, **more})  # fmt: skip
    assert job.best["return"] == pytest.approx(1.0 - 7 * 0.01 - 0.01), "7 steps, and the exit used"


def test_ppo_learns_to_balance():
    job = learned(
        {"recipe": "gymnasium:CartPole-v1", "algorithm": "ppo", "agents": 8,
         "environment_steps": 12_000, "discount": 0.98, "learning_rate": 1e-3,
         "ppo": {"rollout_steps": 32, "batch_size": 256, "epochs": 20, "gae_lambda": 0.8},
         "evaluation": {"every_steps": 500, "episodes": 3}}
    )  # fmt: skip
    assert job.first["return"] < job.best["return"] and job.best["return"] >= 150


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", benchmark.SEEDS)
@pytest.mark.parametrize("config", [benchmark.DQN, benchmark.PPO], ids=["dqn", "ppo"])
def test_the_best_network_of_a_run_balances_in_100_new_episodes(config, seed):
    """After the environment steps of docs/performance.md; the benchmark says how soon."""
    assert benchmark.balanced({"seed": seed, **config})["return"] >= benchmark.GOAL


def value_iteration(environment, discount):
    """Return the best value of each state, from the environment's own table of moves."""
    table = environment.unwrapped.P
    values = np.zeros(environment.observation_space.n)
    for _ in range(2000):
        outcomes = [
            [sum(p * (reward + discount * values[s] * (not over))
                 for p, s, reward, over in table[state][action]) for action in table[state]]
            for state in table
        ]  # fmt: skip
        values = np.array([max(each) for each in outcomes])
    return values


def test_the_greedy_policy_on_a_frozen_lake_is_worth_what_value_iteration_says():
    discount = 0.95
    config = {
        "recipe": "gymnasium", "parameters": {"id": "FrozenLake-v1",
                                              "options": {"is_slippery": False}},
        "agents": 16, "environment_steps": 64_000, "discount": discount,
        "network": {"hidden_sizes": [32]}, "learning_rate": 2e-3,
        "dqn": {"learning_starts": 500, "train_every": 1, "batch_size": 64, "target_every": 100},
        "exploration": {"end": 0.3, "steps": 40_000}, "evaluation": {"every_steps": 1000,
                                                                     "episodes": 2},
    }  # fmt: skip
    job = learned(config)
    environment = gymnasium.make("FrozenLake-v1", is_slippery=False)
    best = value_iteration(environment, discount)
    assert worth(job, discount) == pytest.approx(best[0], abs=1e-9)
    learner = job.population.learner
    with torch.no_grad():
        found = learner.online(torch.eye(16)).amax(1)
    start = float(found[0])
    assert start == pytest.approx(best[0], abs=0.1), "and the network knows it"


def worth(job, discount):
    """Return what the greedy policy gains from the start, discounted."""
    world = job.world.make(1, seed_for(1, "here"), job.device)
    player, gained, factor = job.population.learner.players(1)[0], 0.0, 1.0
    for _ in range(job.world.space.max_steps):
        with torch.no_grad():
            outcome = world.step(player.act(world.observe(), None))
        gained += factor * float(outcome.rewards[0])
        factor *= discount
        if outcome.terminated[0]:
            break
    return gained


def test_an_evaluation_repeats_bit_for_bit():
    job = job_of({"recipe": "grid_town", **QUICK})
    played = [
        evaluate(
            job.world, job.population.learner.players(3)[0], job.config.evaluation, 5, job.device
        )
        for _ in range(2)
    ]
    assert played[0] == played[1]
