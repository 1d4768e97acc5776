"""The ring: what is drawn from it, and sequences of one episode."""

import pytest
import torch

from trainops.kinds.rl.config import RlConfig
from trainops.kinds.rl.environment import Space, StepResult
from trainops.kinds.rl.learners.recurrent import RecurrentLearner, mixed
from trainops.kinds.rl.replay import Replay

CPU = torch.device("cpu")
SPACE = Space("Test", 0, (("number", 1),), ("a", "b"), 10)


def filled(replay, steps, *, ends=(), agents=2):
    """Add steps whose reward is their number; `ends` are (step, agent) that end an episode."""
    for step in range(steps):
        numbers = torch.full((agents, 1), float(step))
        ended = torch.tensor([(step, agent) in ends for agent in range(agents)])
        outcome = StepResult(numbers + 1, numbers[:, 0], ended, torch.zeros(agents) > 0)
        actions = torch.zeros(agents, dtype=torch.int64)
        replay.add(numbers, actions, outcome, None, None, None)
    return replay


def test_the_oldest_go_when_the_ring_is_full():
    replay = filled(Replay(SPACE, 2, 8, CPU), 6)
    assert (len(replay), replay.first, replay.count) == (8, 4, 12)
    generator = torch.Generator().manual_seed(0)
    drawn = replay.at(replay.draw(500, generator)).rewards
    assert sorted(set(drawn.tolist())) == [2.0, 3.0, 4.0, 5.0]


def test_n_steps_are_those_of_the_same_agent():
    replay = filled(Replay(SPACE, 2, 20, CPU), 6, ends={(3, 1)})
    numbers = torch.tensor([2 * 2, 2 * 2 + 1, 5 * 2])  # step 2 of both agents, step 5 of the first
    horizon = replay.horizon(numbers, 3, 0.5, 0.0)
    assert horizon.returns.tolist() == [2 + 1.5 + 1, 2 + 1.5, 5]
    assert horizon.discounts.tolist() == [0.125, 0.0, 0.5], "the newest has one step only"


@pytest.mark.parametrize("adds", [3, 8, 9, 17, 40])
@pytest.mark.parametrize("saves", [1, 5, 100])
def test_a_ring_comes_back_the_same_however_often_it_was_saved(adds, saves):
    replay = Replay(SPACE, 2, 16, CPU)
    for _ in range(adds):
        filled(replay, 1)
        if replay.count % saves == 0:
            replay.stream()
    other = Replay(SPACE, 2, 16, CPU)
    other.load(replay.stream(), [], 0)
    assert torch.equal(other.rows, replay.rows) and other.count == replay.count
    filled(replay, 3), filled(other, 3)
    assert torch.equal(other.rows, replay.rows)
    assert torch.equal(other.stream().column("transition"), replay.stream().column("transition"))


def test_a_cut_separates_what_came_before_from_what_comes_after():
    replay = filled(Replay(SPACE, 2, 40, CPU), 3)
    replay.cut()
    filled(replay, 3)
    horizon = replay.horizon(torch.tensor([2]), 4, 1.0, 0.0)
    assert horizon.returns.item() == 1 + 2
    other = Replay(SPACE, 2, 40, CPU)
    other.load(replay.stream(), replay.breaks, 0)
    assert other.horizon(torch.tensor([2]), 4, 1.0, 0.0).returns.item() == 3


def learner(burn_in, length, steps, *, ends=(), replay=None, **dqn):
    config = RlConfig.parse(
        {"recipe": "grid_corridor", "algorithm": "recurrent_dqn", "agents": 2, "discount": 0.5,
         "dqn": {"burn_in": burn_in, "sequence_length": length, **dqn},
         "replay": {"capacity": 40, **(replay or {})}}
    )  # fmt: skip
    made = RecurrentLearner(config, SPACE, CPU, Replay(SPACE, 2, 40, CPU))
    filled(made.replay, steps, ends=ends)
    return made


def sequence(made, step, agent=0):
    """Return the steps of the sequence around one, and those that are learned from."""
    rows, learned = made.sequences(torch.tensor([2 * step + agent]))
    steps = (rows[:, 0] // 2).tolist()
    assert all(row % 2 == agent for row in rows[:, 0].tolist())
    return steps, [s for s, is_learned in zip(steps, learned[:, 0].tolist(), strict=True)
                   if is_learned]  # fmt: skip


def test_a_sequence_begins_before_what_is_learned_from_it():
    steps, learned = sequence(learner(2, 3, 10), 5)
    assert steps == [3, 4, 5, 6, 7] and learned == [5, 6, 7]


def test_a_sequence_never_begins_before_its_episode():
    steps, learned = sequence(learner(3, 2, 10, ends={(4, 0)}), 6)
    assert steps[:3] == [5, 6, 7] and learned == [6, 7]
    steps, learned = sequence(learner(3, 2, 10, ends={(4, 1)}), 6)
    assert steps == [3, 4, 5, 6, 7] and learned == [6, 7], "another agent's end is no matter"


def test_a_sequence_ends_with_its_episode_and_with_what_there_is():
    _, learned = sequence(learner(2, 4, 10, ends={(6, 0)}), 5)
    assert learned == [5, 6]
    _, learned = sequence(learner(2, 4, 10), 8)
    assert learned == [8, 9]


def test_a_sequence_never_begins_before_the_oldest_row():
    made = learner(4, 2, 25)  # 20 of them are still here
    steps, learned = sequence(made, 6)
    assert steps[:3] == [5, 6, 7] and learned == [6, 7]


@pytest.mark.parametrize("n_step", [1, 3])
def test_targets_of_a_sequence_look_n_steps_on_within_its_episode(n_step):
    """Rewards are the number of the step, so each return can be added up by hand."""
    made = learner(2, 3, 10, ends={(6, 0)}, n_step=n_step, double=False)
    rows, learned = made.sequences(torch.tensor([2 * 4, 2 * 4 + 1, 2 * 8]))
    batch = made.replay.at(rows)
    with torch.no_grad():
        later = made.target(torch.cat([batch.observations[:1], batch.next_observations]))[0]
        found = made.sequence_targets(rows, batch, made.online(batch.observations)[0], 0.0)
    ends, newest = {0: 6, 1: 99, 2: 99}, 9
    for at, which in learned.nonzero().tolist():
        first = int(rows[at, which]) // 2
        last = min(first + n_step - 1, newest, ends[which])
        expected = sum(0.5 ** (step - first) * step for step in range(first, last + 1))
        if last != ends[which]:
            value = later[at + last - first + 1, which].amax()
            expected += 0.5 ** (last - first + 1) * float(value)
        assert float(found[at, which]) == pytest.approx(expected, abs=1e-5)
    assert learned.sum() == 3 + 3 + 2


def test_the_learning_network_chooses_what_the_target_values_n_steps_on():
    made = learner(0, 2, 10, n_step=2)
    with torch.no_grad():
        for each in made.online.parameters():
            each.add_(torch.randn(each.shape, generator=torch.Generator().manual_seed(1)))
    rows, _ = made.sequences(torch.tensor([2 * 4]))
    batch = made.replay.at(rows)
    seen = torch.cat([batch.observations[:1], batch.next_observations])
    with torch.no_grad():
        values, valued = made.online(seen)[0], made.target(seen)[0]
        found = made.sequence_targets(rows, batch, values, 0.0)
    expected = 4 + 0.5 * 5 + 0.25 * valued[2, 0, values[2, 0].argmax()]
    assert float(found[0, 0]) == pytest.approx(float(expected), abs=1e-5)


def test_a_sequences_priority_is_mixed_of_its_largest_error_and_their_mean():
    errors = torch.tensor([[1.0, -8.0], [-3.0, 2.0], [100.0, 4.0]])
    learned = torch.tensor([[True, False], [True, True], [False, True]])
    assert mixed(errors, learned, 0.9).tolist() == pytest.approx([2.7 + 0.2, 3.6 + 0.3])
    assert mixed(errors, learned, 0.0).tolist() == [2.0, 3.0]


def test_sequences_are_drawn_by_priority_and_their_priorities_are_moved():
    made = learner(2, 3, 10, replay={"prioritized": True, "alpha": 1.0}, batch_size=64)
    made.priorities.add(slice(0, 20))
    made.priorities.values[:20] = 0.0
    made.priorities.values[[6, 13]] = 1.0
    made.priorities.load(made.priorities.saved().clone(), 1.0)
    made.update(1, 20, 0.0)
    moved = made.priorities.saved()[:20]
    assert moved.nonzero().flatten().tolist() == [6, 13], "of the rows that sequences began with"
    assert float(moved[6]) != 1.0 and float(moved[13]) != 1.0
