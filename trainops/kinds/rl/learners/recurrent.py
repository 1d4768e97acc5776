"""Deep recurrent Q-learning: an LSTM, and sequences of one episode each to learn from.

A sequence begins at most `burn_in` steps before what is learned from it, never before its episode:
those steps fill the memory and have no errors in the loss (Hausknecht and Stone 2015). Gradients
flow through them, unlike in R2D2 (Kapturowski et al. 2019, 3.1). Each row of the ring begins a
sequence, so its priority is kept at the row that its learning begins with.
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from trainops.kinds.rl.config import RlConfig, longest_sequence
from trainops.kinds.rl.environment import Space
from trainops.kinds.rl.learners.dqn import DqnLearner, best
from trainops.kinds.rl.learners.learner import Player
from trainops.kinds.rl.networks import Memory, RecurrentQ
from trainops.kinds.rl.replay import Batch, Ring
from trainops.kinds.rl.targets import q_target
from trainops.runtime.job import StateDict


class RecurrentLearner(DqnLearner):
    """What the agents remember is part of the state, so open episodes stay open in it."""

    has_memory: ClassVar[bool] = True

    def __init__(self, config: RlConfig, space: Space, device: torch.device, replay: Ring) -> None:
        super().__init__(config, space, device, replay)
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
        numbers, weights = self._draw(environment_steps)
        rows, learned = self.sequences(numbers)
        batch = self.replay.at(rows)
        self._learned_from = batch.next_observations[learned]
        values, _ = self.online(unrolled(batch))
        with torch.no_grad():
            targets = self.sequence_targets(rows, batch, values.detach(), novelty_weight)
        chosen = values[:-1].gather(-1, batch.actions[..., None]).squeeze(-1)
        losses = nn.functional.smooth_l1_loss(chosen, targets, reduction="none")
        if weights is not None:
            losses = losses * weights
        loss = torch.where(learned, losses, 0.0).sum() / learned.sum()
        self.move(loss, step)
        if self.priorities is not None:
            errors = mixed((chosen - targets).detach(), learned, self.config.replay.eta)
            self.priorities.update(numbers % self.replay.slots, errors)
        return loss.detach()

    def sequence_targets(
        self, rows: Tensor, batch: Batch, values: Tensor, novelty_weight: float
    ) -> Tensor:
        """Return what the values of sequences' actions are moved towards: (steps, batch).

        `values` are the learning network's, (steps + 1, batch, actions). A target looks at most
        n steps on, to values that the same memory led to; where the episode or the ring ends
        before, it looks less far.
        """
        config, replay = self.config, self.replay
        horizon = replay.horizon(rows.flatten(), config.dqn.n_step, config.discount, novelty_weight)
        returns, last, discounts = (each.view(rows.shape) for each in horizon)
        steps = torch.arange(len(rows), device=self.device)[:, None]
        at = (steps + last).clamp(max=len(rows) - 1)[..., None].expand(-1, -1, values.shape[-1])
        valued = self.target(unrolled(batch))[0][1:].gather(0, at)
        online = values[1:].gather(0, at) if config.dqn.double else None
        masks = None if batch.next_masks is None else batch.next_masks.gather(0, at)
        return q_target(returns, discounts, valued, online, masks)

    def sequences(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows of a sequence around each of these, and which of them are learned from.

        Both are (steps, batch). A sequence has a row for each of its steps, all of one episode,
        and for those that targets of n steps look at; what follows after the episode's end, or the
        newest row, is filled up and not learned from.
        """
        dqn, replay = self.config.dqn, self.replay
        before = torch.arange(dqn.burn_in, 0, -1, device=self.device)[:, None] * replay.agents
        earlier = numbers - before
        is_gone = earlier < replay.first
        past = replay.at(torch.where(is_gone, numbers, earlier))
        ended = is_gone | past.terminated | past.truncated
        # Steps back to the first row after the last end: where the same episode has begun.
        same = (ended.flip(0).cumsum(0) == 0).sum(0)
        steps = torch.arange(longest_sequence(dqn), device=self.device)[:, None]
        rows = numbers + (steps - same) * replay.agents
        is_here = rows < replay.count
        rows = torch.where(is_here, rows, numbers)
        found = replay.at(rows)
        over = (found.terminated | found.truncated).long() * (steps >= same)
        is_same_episode = over.cumsum(0) - over == 0
        is_target = (steps >= same) & (steps < same + dqn.sequence_length)
        return rows, is_here & is_same_episode & is_target

    def players(self, count: int) -> list[Player]:
        return [Remembering(self, count)]

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


def unrolled(batch: Batch) -> Tensor:
    """Return all that sequences see, where they led included: (steps + 1, batch, observed)."""
    return torch.cat([batch.observations[:1], batch.next_observations])


def mixed(errors: Tensor, learned: Tensor, eta: float) -> Tensor:
    """Return one error for each sequence of (steps, batch), of the steps that are learned from.

    eta times the largest, and the rest the mean (Kapturowski et al. 2019, 2.3).
    """
    sizes = errors.abs() * learned
    return eta * sizes.amax(0) + (1 - eta) * sizes.sum(0) / learned.sum(0)


def forgotten(memory: Memory, which: Sequence[int]) -> Memory:
    """Return the memory without that of these agents."""
    if not len(which):
        return memory
    hidden, cell = (each.clone() for each in memory)
    rows = list(which)
    hidden[:, rows], cell[:, rows] = 0.0, 0.0
    return hidden, cell
