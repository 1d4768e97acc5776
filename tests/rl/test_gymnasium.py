"""Environments of Gymnasium: their state bit for bit, or the beginning of an episode."""

import gymnasium
import numpy as np
import pytest
import torch

from tests.engines.contract import Case, ScriptedSupervisor, attempt
from tests.rl.cases import of
from trainops.kinds.rl.environment import EnvironmentContext
from trainops.recipes import recipes
from trainops.runtime.checkpoint.snapshot import freeze

CPU = torch.device("cpu")


def made(name, count=1, seed=1, **options):
    recipe = recipes("rl")["gymnasium"]
    parameters = recipe.parse_parameters({"id": name, **options})
    return recipe.builder()(parameters, EnvironmentContext(seed=1)).make(count, seed, CPU)


def go(environment, steps, seed=0):
    """Let it run, and return all that was seen."""
    generator = torch.Generator().manual_seed(seed)
    actions, seen = len(environment.world.space.actions), []
    for _ in range(steps):
        chosen = torch.randint(actions, (environment.count,), generator=generator)
        outcome = environment.step(chosen)
        seen.append([each.clone() for each in outcome])
        ended = outcome.terminated | outcome.truncated
        environment.restart(ended.nonzero().flatten().tolist())
        seen.append([environment.observe()])
    return seen


def same(one, other):
    return all(torch.equal(a, b) for x, y in zip(one, other, strict=True)
               for a, b in zip(x, y, strict=True))  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    "name",
    ["CartPole-v1", "MountainCar-v0", "Acrobot-v1", "FrozenLake-v1", "Taxi-v4", "CliffWalking-v1",
     "Blackjack-v1"],
)  # fmt: skip
def test_classic_control_and_toy_text_continue_bit_for_bit(name, count):
    one = made(name, count, max_steps=15)
    assert not one.inexact()
    go(one, 20)
    state = freeze(one.state_dict())
    other = made(name, count, seed=99, max_steps=15)
    go(other, 7, seed=5)
    other.load_state_dict(state)
    assert same(go(one, 40, seed=2), go(other, 40, seed=2))


def test_many_cart_poles_move_as_one_does():
    many, single = made("CartPole-v1", 4), gymnasium.make("CartPole-v1").unwrapped
    single.reset(seed=0)
    single.state = many.vector.state[:, 2].copy()
    for action in (0, 1, 1, 0, 1):
        seen, reward, ended, _, _ = single.step(action)
        outcome = many.step(torch.full((4,), action))
        assert np.allclose(outcome.observations[2], seen, atol=1e-6)
        assert outcome.rewards[2] == reward and bool(outcome.terminated[2]) == ended


def test_time_limits_truncate_and_do_not_terminate():
    for count in (1, 2):
        environment = made("MountainCar-v0", count, max_steps=3)
        for _ in range(3):
            outcome = environment.step(torch.ones(count, dtype=torch.int64))
        assert outcome.truncated.all() and not outcome.terminated.any()
    assert made("FrozenLake-v1").world.space.max_steps == 100, "the id's own"


class Sealed(gymnasium.Env):
    """An environment with something inside that nobody can save."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2, start=1)

    def __init__(self):
        self.inside = iter(range(10**9))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        assert action in (1, 2)
        next(self.inside)
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), 1.0, False, False, {}


class SealedFromResets(Sealed):
    """One that has nothing of the kind before an episode begins."""

    def __init__(self):
        pass

    def reset(self, *, seed=None, options=None):
        self.inside = iter(range(10**9))
        return super().reset(seed=seed)


def test_what_cannot_be_saved_once_an_episode_has_begun_is_known_before_it_begins():
    """It was noticed at the first checkpoint, which failed the operation."""
    gymnasium.register("SealedFromResets-v0", entry_point=SealedFromResets, max_episode_steps=10)
    environment = made("SealedFromResets-v0", 2)
    del gymnasium.registry["SealedFromResets-v0"]
    assert "inside is a range_iterator" in environment.inexact()
    assert "environments" not in freeze(environment.state_dict())


@pytest.fixture
def sealed():
    gymnasium.register("Sealed-v0", entry_point=Sealed, max_episode_steps=10)
    yield "Sealed-v0"
    del gymnasium.registry["Sealed-v0"]


def test_what_cannot_be_saved_begins_a_new_episode_and_the_receipt_says_so(sealed, tmp_path):
    config = of({"recipe": "gymnasium", "parameters": {"id": sealed}}, "dqn", 2, 40)
    case = Case("rl", "sealed", config, stops=())
    first, second = ScriptedSupervisor(at=15), ScriptedSupervisor()
    attempt(case, tmp_path, first)
    attempt(case, tmp_path, second, resume=first.checkpoints, number=2)
    assert second.progress[-1].step == 40
    receipt = second.receipts[0]
    assert not receipt.exact
    (item,) = [item for item in receipt.items if item.part == "environment"]
    assert not item.exact and "inside is a range_iterator" in item.note
    points = [value for each in (first, second) for value in each.curve.values()]
    assert points[-1]["episodes"] == 2 + 2 * ((40 - 15) // 10), "cut ones are not counted"
