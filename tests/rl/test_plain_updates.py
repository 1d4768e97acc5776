"""Updates of agents' networks beside plain PyTorch: loops over rows, torch's Adam and clipping.

What is drawn from the ring is what the learner's own generator draws, and is tested in
test_replay and test_targets; here it is only drawn again from a copy.
"""

import copy
from itertools import product

import pytest
import torch
from torch import nn

from tests.rl.populations import CARTPOLE, GRID, of, played
from tests.thinning import quick_some

DISCOUNT, NEVER = 0.99, -1e9
WORLDS = {"cartpole": CARTPOLE, "grid": GRID}
TIRING = {"meters": [{"name": "energy", "depletion": 0.3, "is_fatal": True},
                     {"name": "food", "depletion": 0.05}]}  # fmt: skip
DEADLY = {  # where episodes end by themselves
    "cartpole": {**CARTPOLE, "parameters": {"id": "CartPole-v1"}},
    "grid": {**GRID, "parameters": {**GRID["parameters"], **TIRING}},
}


def plain_adam(network, learner):
    """Return torch's Adam with the moments that the learner has."""
    adam = torch.optim.Adam(network.parameters(), lr=learner.config.learning_rate, fused=True)
    adam.load_state_dict(copy.deepcopy(learner.optimizer.state_dict()))
    return adam


def descend(adam, network, loss, max_norm):
    adam.zero_grad()
    loss.backward()
    if max_norm is not None:
        nn.utils.clip_grad_norm_(network.parameters(), max_norm)
    adam.step()


def require_same(network, expected):
    for (name, own), theirs in zip(
        network.state_dict().items(), expected.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(own, theirs, rtol=1e-6, atol=1e-7, msg=name)


class Rows:
    """The transitions of a ring, one at a time, by their number."""

    def __init__(self, replay):
        self.replay = replay

    def __getitem__(self, number):
        batch = self.replay.at(torch.tensor([number]))
        return type(batch)(*(None if each is None else each[0] for each in batch))

    def returns(self, number, steps):
        """Return the discounted rewards from a row on, the last row of them, and what follows.

        An episode's end cuts them; after a termination nothing follows.
        """
        total, at = 0.0, number
        for taken in range(steps):
            row = self[at]
            total += DISCOUNT**taken * float(row.rewards)
            ahead = at + self.replay.agents
            if row.terminated or row.truncated or taken == steps - 1 or ahead >= self.replay.count:
                break
            at = ahead
        return total, row, 0.0 if row.terminated else DISCOUNT ** (taken + 1)


def q_value(online, target, row, *, double):
    """Return what the target network says of the best action where a row led to."""
    values = target(row.next_observations[None])[0]
    chooser = online(row.next_observations[None])[0] if double else values
    judged = chooser if row.next_masks is None else chooser.masked_fill(~row.next_masks, NEVER)
    return values[judged.argmax()]


DQN = {
    "plain": {"dqn": {"double": False}},
    "double": {"dqn": {"double": True}},
    "dueling": {"dqn": {"dueling": True, "double": True}},
    "three steps": {"dqn": {"n_step": 3}},
    "three steps, full ring": {"dqn": {"n_step": 3}, "replay": {"capacity": 40}},
    "soft target": {"dqn": {"target_tau": 0.2}},
    "unclipped": {"max_grad_norm": None},
    "clipped": {"max_grad_norm": 0.01},
    "by priority": {"replay": {"capacity": 40, "prioritized": True, "alpha": 0.7, "beta": 0.4,
                    "beta_steps": 100}},
    "by priority, three steps": {"dqn": {"n_step": 3},
                                 "replay": {"capacity": 40, "prioritized": True}},
}  # fmt: skip


@pytest.mark.parametrize(("world", "name"), quick_some(list(product(DEADLY, DQN)), every=4))
def test_dqn_updates(world, name):
    learner = learner_of(DEADLY[world], **DQN[name])
    before, terminal = learner.updates, 0
    for _ in range(3):
        online, target = copy.deepcopy(learner.online), copy.deepcopy(learner.target)
        adam = plain_adam(online, learner)
        numbers, weights = drawn(learner, 60)
        learner.update(30, 60, 0.0)
        loss, errors = q_loss(learner, online, target, numbers, weights)
        descend(adam, online, loss, learner.config.max_grad_norm)
        require_same(learner.online, online)
        require_target(learner, target, online, learner.updates)
        if learner.priorities is not None:
            require_priorities(learner, numbers, errors)
        terminal += int(learner.replay.at(numbers).terminated.sum())
    assert learner.updates == before + 3 and terminal


def learner_of(world, **more):
    """Return a learner of 60 rows whose networks differ in what they prefer."""
    dqn = {"batch_size": 32, **more.pop("dqn", {})}
    config = of(world, "dqn", 2, 40, discount=DISCOUNT, dqn=dqn, **more)
    learner = played(config, 30).population.learner
    noise = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for each in learner.target.parameters():
            each += torch.randn(each.shape, generator=noise)
    return learner


def drawn(learner, environment_steps):
    """Return the rows that the next update draws, and how much each counts."""
    size, replay = learner.config.dqn.batch_size, learner.replay
    generator = torch.Generator()
    generator.set_state(learner.drawing.get_state())
    if learner.priorities is None:
        oldest = replay.count - len(replay)
        return torch.randint(len(replay), (size,), generator=generator) + oldest, None
    slots, _ = learner.priorities.draw(size, generator)
    settings = learner.config.replay
    beta = settings.beta + (1 - settings.beta) * min(1.0, environment_steps / settings.beta_steps)
    every = learner.priorities.saved().double()
    chances = (every / every.sum())[slots]
    weights = (len(replay) * chances) ** -beta
    newest = (replay.count - 1) % replay.slots
    numbers = replay.count - 1 - (newest - slots) % replay.slots
    return numbers, (weights / weights.max()).float()


def q_loss(learner, online, target, numbers, weights):
    """Return Huber's loss, the mean over the batch, and each row's error."""
    rows, dqn = Rows(learner.replay), learner.config.dqn
    values, aims = [], []
    for each in numbers.tolist():
        row = rows[each]
        values.append(online(row.observations[None])[0, row.actions])
        total, last, factor = rows.returns(each, dqn.n_step)
        with torch.no_grad():
            aims.append(total + factor * q_value(online, target, last, double=dqn.double))
    errors = torch.stack(values) - torch.stack(aims).detach()
    size = errors.abs()
    huber = torch.where(size < 1, errors**2 / 2, size - 0.5)
    return (huber if weights is None else huber * weights).mean(), errors.detach()


def require_target(learner, target, online, updates):
    """The target follows by a share after each update, or is replaced after every so many."""
    dqn = learner.config.dqn
    for before, moved, now in zip(
        target.parameters(), online.parameters(), learner.target.parameters(), strict=True
    ):
        if dqn.target_tau is not None:
            expected = (1 - dqn.target_tau) * before + dqn.target_tau * moved
        else:
            expected = moved if updates % dqn.target_every == 0 else before
        torch.testing.assert_close(now, expected, rtol=1e-6, atol=1e-7)


def require_priorities(learner, numbers, errors):
    """A row's priority is its error to the power of alpha; the last one of a repeated row's."""
    settings, kept = learner.config.replay, learner.priorities.saved()
    for slot, error in zip((numbers % learner.replay.slots).tolist(), errors.tolist(), strict=True):
        expected = (abs(error) + 1e-6) ** settings.alpha
        assert float(kept[slot]) == pytest.approx(expected, rel=2**-8)  # bfloat16


def test_a_target_is_replaced_after_every_n_updates():
    config = of(CARTPOLE, "dqn", 2, 40, dqn={"target_every": 3})
    learner = played(config, 30).population.learner
    replaced = []
    for _ in range(9):
        before = copy.deepcopy(learner.target)
        learner.update(30, 60, 0.0)
        same = [
            torch.equal(one, other)
            for one, other in zip(before.parameters(), learner.target.parameters(), strict=True)
        ]
        replaced.append(learner.updates % 3 == 0)
        assert all(same) != replaced[-1]
    assert replaced.count(True) == 3


@pytest.mark.parametrize(("epsilon", "share"), [(0.0, 0.0), (0.3, 0.3), (1.0, 1.0)])
def test_agents_explore_as_often_as_they_are_configured(epsilon, share):
    """What is drawn is any action that can be done, the best one among them."""
    learner = learner_of(GRID)
    count, actions = 6000, len(learner.space.actions)
    row = learner.replay.at(torch.tensor([learner.replay.count - 1]))
    observations = row.observations.expand(count, -1)
    masks = torch.ones(count, actions, dtype=torch.bool)
    masks[:, 0] = False
    chosen = learner.act(observations, masks, epsilon)
    best = int(learner.greedy(observations[:1], masks[:1]))
    assert not (chosen == 0).any()
    expected = share * (actions - 2) / (actions - 1)
    assert float((chosen != best).float().mean()) == pytest.approx(expected, abs=0.03)
    assert len(set(chosen.tolist())) == (actions - 1 if share else 1)


PPO = {
    "plain": {},
    "annealed": {"anneal": True},
    "unclipped gradients": {"max_grad_norm": None},
    "tight": {"max_grad_norm": 0.05, "ppo": {"clip": 0.01, "epochs": 6}},
    "entropy": {"ppo": {"entropy_weight": 0.5, "value_weight": 0.1, "gae_lambda": 0.5}},
    "one at a time": {"ppo": {"batch_size": 1, "epochs": 1}},
}


@pytest.mark.parametrize(("world", "name"), quick_some(list(product(WORLDS, PPO)), every=4))
def test_ppo_updates(world, name):
    """A rollout of 5 steps of 3 agents is full after 20 steps; then it is learned from again."""
    config = of(WORLDS[world], "ppo", 3, 40, discount=DISCOUNT, learning_rate=0.01, **PPO[name])
    learner = played(config, 20).population.learner
    ppo, network = learner.config.ppo, copy.deepcopy(learner.network)
    adam, shuffling = plain_adam(network, learner), torch.Generator()
    shuffling.set_state(learner.shuffling.get_state())
    share = 1 - 60 / 120 if learner.config.anneal else 1.0
    losses = learner.learn(20, 60, 0.0)
    adam.param_groups[0]["lr"] = 0.01 * share
    rollout = [Rows(learner.replay)[number] for number in range(45, 60)]
    rollout = in_slots(rollout, learner.replay)
    old, gains, returns = judged(network, rollout, learner)
    expected = []
    for _ in range(ppo.epochs):
        for rows in torch.randperm(15, generator=shuffling).split(ppo.batch_size):
            loss = ppo_loss(network, rollout, rows.tolist(), old, gains, returns, ppo, share)
            descend(adam, network, loss, learner.config.max_grad_norm)
            expected.append(loss.item())
    assert [float(loss) for loss in losses] == pytest.approx(expected, rel=1e-4, abs=1e-6)
    for own, theirs in zip(learner.network.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(own, theirs, rtol=1e-4, atol=1e-5)


def in_slots(rollout, replay):
    """Return the rows in the order of the ring's slots: the rollout begins at a slot of its own."""
    first = (replay.count - len(rollout)) % replay.slots
    return rollout[len(rollout) - first :] + rollout[: len(rollout) - first]


def logits(network, row):
    found = network.policy(row.observations[None])[0]
    return found if row.masks is None else found.masked_fill(~row.masks, NEVER)


@torch.no_grad()
def judged(network, rollout, learner):
    """Return of each row the log probability of its action, its advantage and its return.

    An advantage is the sum of the later errors of the values, until the episode ends.
    """
    config, agents = learner.config, 3
    values = [float(network.value(row.observations[None])) for row in rollout]
    later = [float(network.value(row.next_observations[None])) for row in rollout]
    gains = [0.0] * len(rollout)
    for number in reversed(range(len(rollout))):
        row = rollout[number]
        follows = 0.0 if row.terminated else config.discount * later[number]
        gains[number] = float(row.rewards) + follows - values[number]
        is_open = not (row.terminated or row.truncated)
        if is_open and number + agents < len(rollout):
            gains[number] += config.discount * config.ppo.gae_lambda * gains[number + agents]
    old = [float(logits(network, row).log_softmax(0)[row.actions]) for row in rollout]
    returns = [gain + value for gain, value in zip(gains, values, strict=True)]
    return old, gains, returns


def ppo_loss(network, rollout, rows, old, gains, returns, ppo, share):
    advantages = torch.tensor([gains[each] for each in rows])
    if len(rows) > 1:
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    gained, value_errors, entropies = [], [], []
    for each, advantage in zip(rows, advantages, strict=True):
        row = rollout[each]
        likely = logits(network, row).log_softmax(0)
        ratio = (likely[row.actions] - old[each]).exp()
        bounded = ratio.clamp(1 - ppo.clip * share, 1 + ppo.clip * share)
        gained.append(torch.minimum(ratio * advantage, bounded * advantage))
        value_errors.append((network.value(row.observations[None])[0] - returns[each]) ** 2)
        entropies.append(-(likely.exp() * likely).sum())
    gain, value_error, entropy = (
        torch.stack(each).mean() for each in (gained, value_errors, entropies)
    )
    return -gain + ppo.value_weight * value_error - ppo.entropy_weight * entropy
