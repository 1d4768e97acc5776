"""Proximal policy optimization (Schulman et al. 2017) with generalised advantages."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainops.kinds.rl.config import RlConfig
from trainops.kinds.rl.environment import Space
from trainops.kinds.rl.implementation import make_adam
from trainops.kinds.rl.learners.dqn import best
from trainops.kinds.rl.learners.learner import Player, annealed
from trainops.kinds.rl.networks import ActorCritic
from trainops.kinds.rl.replay import Batch, Ring
from trainops.kinds.rl.seeds import generator
from trainops.kinds.rl.targets import NEVER, advantages
from trainops.runtime.job import StateDict


class PpoLearner:
    """A policy learns from a rollout of all agents, then forgets it.

    The rollout is a ring of exactly its length. Values and probabilities are of the weights that
    made it, which do not move meanwhile, so they are computed at once when it is full.
    """

    def __init__(self, config: RlConfig, space: Space, device: torch.device, replay: Ring) -> None:
        self.config, self.space, self.device = config, space, device
        self.network = ActorCritic(space.observation_dim, len(space.actions), config.network)
        self.network.to(device)
        self.optimizer = make_adam(self.network, config)
        self.size = config.ppo.rollout_steps * config.agents
        self.replay = replay
        self.acting = generator(config.seed, "actions", device)
        self.shuffling = generator(config.seed, "minibatches", device)
        self.updates = 0
        self._learned_from: Tensor | None = None

    @torch.no_grad()
    def act(self, observations: Tensor, masks: Tensor | None, epsilon: float) -> Tensor:
        """Draw from the policy, by the largest of logits plus Gumbel noise; epsilon is not used."""
        logits = self._logits(observations, masks)
        drawn = torch.empty_like(logits).exponential_(generator=self.acting)
        return (logits - drawn.log()).argmax(1)

    def recorded(self, taken: slice) -> None:
        """A rollout is learned from whole: there is nothing to prefer."""

    def restarted(self, which: Sequence[int]) -> None:
        """A network without memory has nothing to forget."""

    def learn(self, step: int, environment_steps: int, novelty_weight: float) -> list[Tensor]:
        self._learned_from = None
        ppo = self.config.ppo
        if step % ppo.rollout_steps:
            return []
        share = annealed(self.config, environment_steps)
        self.optimizer.set_rate(self.config.learning_rate * share)
        batch = self.replay.layout.batch(self.replay.rows)
        self._learned_from = batch.next_observations
        old, found, returns = self._judged(batch, novelty_weight)
        losses = []
        for _ in range(ppo.epochs):
            order = torch.randperm(self.size, generator=self.shuffling, device=self.device)
            for rows in order.split(ppo.batch_size):
                chosen = _rows(batch, rows)
                loss = self._loss(chosen, old[rows], found[rows], returns[rows], ppo.clip * share)
                self.optimizer.move(loss, step)
                self.updates += 1
                losses.append(loss.detach())
        return losses

    def recent_observations(self) -> list[Tensor]:
        return [] if self._learned_from is None else [self._learned_from]

    def players(self, count: int) -> list[Player]:
        return [MostLikely(self)]

    def state_dict(self) -> StateDict:
        return {
            "model": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "learning": {
                "updates": self.updates,
                "acting": self.acting.get_state(),
                "shuffling": self.shuffling.get_state(),
            },
        }

    def load_state_dict(self, state: StateDict) -> None:
        learning = state["learning"]
        self.network.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.updates = int(learning["updates"])
        self.acting.set_state(learning["acting"])
        self.shuffling.set_state(learning["shuffling"])

    @torch.no_grad()
    def _judged(self, batch: Batch, novelty_weight: float) -> tuple[Tensor, Tensor, Tensor]:
        """Return log probabilities, advantages and returns of the rollout, in rows' order."""
        config, shape = self.config, (-1, self.config.agents)
        values = self.network.value(batch.observations)
        found = advantages(
            batch.all_rewards(novelty_weight).view(shape),
            values.view(shape),
            self.network.value(batch.next_observations).view(shape),
            batch.terminated.view(shape),
            (batch.terminated | batch.truncated).view(shape),
            discount=config.discount,
            gae_lambda=config.ppo.gae_lambda,
        ).flatten()
        return self._log_probabilities(batch)[0], found, found + values

    def _loss(
        self, batch: Batch, old: Tensor, advantage: Tensor, returns: Tensor, clip: float
    ) -> Tensor:
        ppo = self.config.ppo
        log_probability, entropy = self._log_probabilities(batch)
        if len(advantage) > 1:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        ratio = (log_probability - old).exp()
        clipped = ratio.clamp(1 - clip, 1 + clip)
        gain = torch.minimum(ratio * advantage, clipped * advantage).mean()
        value_loss = nn.functional.mse_loss(self.network.value(batch.observations), returns)
        return -gain + ppo.value_weight * value_loss - ppo.entropy_weight * entropy.mean()

    def _log_probabilities(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return those of the actions taken, and the entropy of each choice."""
        every = torch.log_softmax(self._logits(batch.observations, batch.masks), dim=1)
        entropy = -(every.exp() * every).sum(1)
        return every.gather(1, batch.actions[:, None]).squeeze(1), entropy

    def _logits(self, observations: Tensor, masks: Tensor | None) -> Tensor:
        logits: Tensor = self.network.policy(observations)
        return logits if masks is None else logits.masked_fill(~masks, NEVER)


class MostLikely:
    """Plays the action that the policy prefers."""

    def __init__(self, learner: PpoLearner) -> None:
        self.learner = learner

    def act(self, observations: Tensor, masks: Tensor | None) -> Tensor:
        return best(self.learner.network.policy(observations), masks)

    def restarted(self, which: Sequence[int]) -> None:
        """A network without memory has nothing to forget."""


def _rows(batch: Batch, rows: Tensor) -> Batch:
    return Batch(*(None if each is None else each[rows] for each in batch))  # type: ignore[arg-type]
