"""Deep recurrent Q-learning: an LSTM, and sequences of one episode each to learn from.

A sequence begins at most `burn_in` steps before what is learned from it, never before its episode:
those steps only fill the memory (Hausknecht and Stone 2015; Kapturowski et al. 2019, 3.1).
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from trainops.engines.job import StateDict
from trainops.engines.rl.config import RlConfig
from trainops.engines.rl.environment import Space
from trainops.engines.rl.learners.dqn import DqnLearner, best
from trainops.engines.rl.learners.learner import Player
from trainops.engines.rl.networks import Memory, RecurrentQ
from trainops.engines.rl.targets import q_target


class RecurrentLearner(DqnLearner):
    """What the agents remember is part of the state, so open episodes stay open in it."""

    has_memory: ClassVar[bool] = True

    def __init__(self, config: RlConfig, space: Space, device: torch.device) -> None:
        super().__init__(config, space, device)
        self.memory = self.no_memory(config.agents)

    def make_network(self) -> nn.Module:
        return RecurrentQ(
            self.space.observation_dim, len(self.space.actions), self.config.network,
            dueling=self.config.dqn.dueling,
        )  # fmt: skip

    def no_memory(self, count: int) -> Memory:
        units = self.config.network.memory_size
        empty = torch.zeros(1, count, units, device=self.device)
        return empty, empty.clone()

    def greedy(self, observations: Tensor, masks: Tensor | None) -> Tensor:
        values, self.memory = self.online(observations[None], self.memory)
        return best(values[0], masks)

    def restarted(self, which: Sequence[int]) -> None:
        self.memory = forgotten(self.memory, which)

    def least(self) -> int:
        return self.replay.agents

    def update(self, step: int, environment_steps: int, novelty_weight: float) -> Tensor:
        numbers = self.replay.draw(self.config.dqn.batch_size, self.drawing)
        rows, learned = self.sequences(numbers)
        batch = self.replay.at(rows)
        self._learned_from = batch.next_observations[learned]
        seen = torch.cat([batch.observations[:1], batch.next_observations])
        values, _ = self.online(seen)
        with torch.no_grad():
            later, _ = self.target(seen)
            rewards = batch.all_rewards(novelty_weight)
            discounts = self.config.discount * (~batch.terminated).float()
            online = values.detach()[1:] if self.config.dqn.double else None
            targets = q_target(rewards, discounts, later[1:], online, batch.next_masks)
        chosen = values[:-1].gather(-1, batch.actions[..., None]).squeeze(-1)
        losses = nn.functional.smooth_l1_loss(chosen, targets, reduction="none")
        loss = torch.where(learned, losses, 0.0).sum() / learned.sum()
        self.move(loss, step)
        return loss.detach()

    def sequences(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows of a sequence around each of these, and which of them are learned from.

        Both are (steps, batch). A sequence has a row for each of its steps, all of one episode;
        what follows after the episode's end, or the newest row, is filled up and not learned from.
        """
        dqn, replay = self.config.dqn, self.replay
        before = torch.arange(dqn.burn_in, 0, -1, device=self.device)[:, None] * replay.agents
        earlier = numbers - before
        is_gone = earlier < replay.first
        past = replay.at(torch.where(is_gone, numbers, earlier))
        ended = is_gone | past.terminated | past.truncated
        # Steps back to the first row after the last end: where the same episode has begun.
        same = (ended.flip(0).cumsum(0) == 0).sum(0)
        steps = torch.arange(dqn.burn_in + dqn.sequence_length, device=self.device)[:, None]
        rows = numbers + (steps - same) * replay.agents
        is_here = rows < replay.count
        rows = torch.where(is_here, rows, numbers)
        found = replay.at(rows)
        over = (found.terminated | found.truncated).long() * (steps >= same)
        is_same_episode = over.cumsum(0) - over == 0
        is_target = (steps >= same) & (steps < same + dqn.sequence_length)
        return rows, is_here & is_same_episode & is_target

    def player(self, count: int) -> Player:
        return Remembering(self, count)

    def state_dict(self) -> StateDict:
        hidden, cell = self.memory
        return super().state_dict() | {"memory": {"h": hidden, "c": cell}}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        given = state["memory"]["h"], state["memory"]["c"]
        for own, each in zip(self.memory, given, strict=True):
            if own.shape != each.shape:
                raise ValueError(f"memory is {tuple(each.shape)}, here {tuple(own.shape)}")
        hidden, cell = (each.to(self.device, copy=True) for each in given)
        self.memory = hidden, cell


class Remembering:
    """Plays the best action by a memory of its own."""

    def __init__(self, learner: RecurrentLearner, count: int) -> None:
        self.learner, self.memory = learner, learner.no_memory(count)

    def act(self, observations: Tensor, masks: Tensor | None) -> Tensor:
        values, self.memory = self.learner.online(observations[None], self.memory)
        return best(values[0], masks)

    def restarted(self, which: Sequence[int]) -> None:
        self.memory = forgotten(self.memory, which)


def forgotten(memory: Memory, which: Sequence[int]) -> Memory:
    """Return the memory without that of these agents."""
    if not len(which):
        return memory
    hidden, cell = (each.clone() for each in memory)
    rows = list(which)
    hidden[:, rows], cell[:, rows] = 0.0, 0.0
    return hidden, cell
