"""Targets and advantages against numbers computed by hand."""

import pytest
import torch
from torch import tensor

from trainops.kinds.rl.config import ExplorationConfig
from trainops.kinds.rl.priorities import Priorities
from trainops.kinds.rl.schedules import epsilon
from trainops.kinds.rl.targets import advantages, importance, n_step, one_step, q_target


def flags(*values):
    return tensor([[bool(value) for value in row] for row in values])


def test_n_step_returns_stop_at_the_end_of_an_episode():
    rewards = tensor([[1.0, 2.0, 4.0], [1.0, 2.0, 4.0], [1.0, 2.0, 4.0]])
    terminated = flags((0, 0, 0), (0, 1, 0), (0, 0, 0))
    ended = flags((0, 0, 0), (0, 1, 0), (1, 0, 0))  # the last one was truncated at once
    horizon = n_step(rewards, terminated, ended, 0.5)
    assert horizon.returns.tolist() == [1 + 1 + 1, 1 + 1, 1]
    assert horizon.last.tolist() == [2, 1, 0]
    assert horizon.discounts.tolist() == [0.125, 0.0, 0.5]


def test_one_step_is_n_step_of_one():
    rewards, terminated = tensor([1.0, 2.0]), tensor([False, True])
    ours = one_step(rewards, terminated, 0.9)
    theirs = n_step(rewards[:, None], terminated[:, None], terminated[:, None], 0.9)
    assert all(map(torch.equal, ours, theirs))


def test_double_dqn_values_by_the_target_what_the_learner_chooses():
    target, online = tensor([[1.0, 5.0, 2.0]]), tensor([[3.0, 1.0, 9.0]])
    returns, discounts = tensor([10.0]), tensor([0.9])
    assert q_target(returns, discounts, target).item() == pytest.approx(10 + 0.9 * 5)
    assert q_target(returns, discounts, target, online).item() == pytest.approx(10 + 0.9 * 2)


def test_what_is_masked_out_is_never_the_best_action():
    target, online = tensor([[1.0, 5.0, 2.0]]), tensor([[3.0, 1.0, 9.0]])
    masks = flags((1, 1, 0))
    assert q_target(tensor([0.0]), tensor([1.0]), target, online, masks).item() == 1.0


def test_after_a_terminal_step_nothing_follows():
    assert q_target(tensor([3.0]), tensor([0.0]), tensor([[100.0]])).item() == 3.0


def test_generalised_advantages_by_hand():
    """Two agents, three steps, discount 0.5, lambda 0.5; the second agent dies in its middle."""
    rewards = tensor([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]])
    values = tensor([[2.0, 2.0], [2.0, 4.0], [2.0, 6.0]])
    later = tensor([[2.0, 4.0], [2.0, 100.0], [8.0, 2.0]])
    terminated = flags((0, 0), (0, 1), (0, 0))
    found = advantages(rewards, values, later, terminated, terminated, discount=0.5, gae_lambda=0.5)
    deltas_first = [1 + 1 - 2, 1 + 1 - 2, 1 + 4 - 2]  # 0, 0, 3
    deltas_second = [1 + 2 - 2, 2 + 0 - 4, 3 + 1 - 6]  # 1, -2, -2
    assert found[:, 0].tolist() == [
        deltas_first[0] + 0.25 * 0.25 * 3, 0.25 * deltas_first[2], deltas_first[2],
    ]  # fmt: skip
    assert found[:, 1].tolist() == [1 + 0.25 * -2, deltas_second[1], deltas_second[2]]


def test_a_truncated_step_is_followed_by_the_value_of_where_it_led():
    found = advantages(
        tensor([[1.0], [1.0]]), tensor([[0.0], [0.0]]), tensor([[10.0], [0.0]]),
        flags((0,), (0,)), flags((1,), (0,)), discount=0.5, gae_lambda=1.0,
    )  # fmt: skip
    assert found.flatten().tolist() == [1 + 5, 1], "and nothing of the next episode comes back"


def test_importance_weights_by_hand():
    weights = importance(tensor([0.5, 0.25, 0.25]), 3, 1.0)
    assert weights.tolist() == pytest.approx([0.5, 1.0, 1.0])  # 1 / (3 p), by the largest
    assert importance(tensor([0.5, 0.25]), 2, 0.0).tolist() == [1.0, 1.0]


def test_exploration_by_hand():
    line = ExplorationConfig(start=0.9, end=0.1, steps=8)
    assert [epsilon(line, step, 5) for step in (0, 2, 8, 9, 800)] == pytest.approx(
        [0.9, 0.7, 0.1, 0.1, 0.1]
    )
    falling = ExplorationConfig(schedule="exponential", start=0.8, end=0.1, decay=0.5)
    assert [epsilon(falling, 5, episode) for episode in range(5)] == pytest.approx(
        [0.8, 0.4, 0.2, 0.1, 0.1]
    )


@pytest.mark.slow
def test_slots_are_drawn_by_their_priority():
    priorities = Priorities(3000, 1.0, torch.device("cpu"))
    priorities.add(slice(0, 3000))
    priorities.update(torch.arange(3000), torch.zeros(3000))
    priorities.update(tensor([5, 1500, 2999]), tensor([1.0, 2.0, 5.0]))
    generator = torch.Generator().manual_seed(1)
    slots, likely = priorities.draw(8000, generator)
    counts = torch.bincount(slots, minlength=3000)
    assert counts[[5, 1500, 2999]].tolist() == pytest.approx([1000, 2000, 5000], rel=0.02)
    probabilities = dict(zip(slots.tolist(), likely.tolist(), strict=True))
    assert probabilities[2999] == pytest.approx(5 / 8, rel=0.01)


def test_a_new_transition_has_the_largest_priority_so_far():
    priorities = Priorities(10, 0.5, torch.device("cpu"))
    priorities.add(slice(0, 2))
    priorities.update(tensor([0]), tensor([16.0]))
    priorities.add(slice(2, 4))
    assert priorities.saved()[:4].tolist() == [4.0, 1.0, 4.0, 4.0]


def test_sums_of_blocks_follow_from_the_priorities_alone():
    priorities = Priorities(5000, 0.6, torch.device("cpu"))
    priorities.add(slice(0, 5000))
    generator = torch.Generator().manual_seed(2)
    for _ in range(200):
        slots = torch.randint(5000, (32,), generator=generator)
        priorities.update(slots, torch.rand(32, generator=generator))
    other = Priorities(5000, 0.6, torch.device("cpu"))
    other.load(priorities.saved().clone(), priorities.largest)
    assert torch.equal(other.sums, priorities.sums)
