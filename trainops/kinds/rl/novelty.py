"""Random network distillation: what a fixed random network says of a state is hard to predict
as long as the state is new (Burda et al. 2018)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from trainops.kinds.rl.config import NoveltyConfig
from trainops.kinds.rl.networks import perceptron
from trainops.kinds.rl.schedules import linear
from trainops.runtime.job import StateDict

HIDDEN = 64
FARTHEST = 5.0  # standard deviations that an observation counts


class Novelty:
    """The agents' own reward. Observations and rewards are normalised by all seen so far."""

    def __init__(self, config: NoveltyConfig, observed: int, device: torch.device) -> None:
        self.config = config
        sizes = [observed, HIDDEN, config.embedding]
        self.fixed = perceptron(sizes).to(device).requires_grad_(False)
        self.predictor = perceptron(sizes).to(device)
        self.optimizer = torch.optim.Adam(self.predictor.parameters(), lr=config.learning_rate)
        self.seen = RunningMoments(observed, device)
        self.errors = RunningMoments(1, device)

    def weight(self, environment_steps: int) -> float:
        config = self.config
        return linear(config.weight, config.end, config.steps, environment_steps)

    @torch.no_grad()
    def reward(self, observations: Tensor) -> Tensor:
        """Return how new these observations are: (environments,), about 1 on average."""
        self.seen.add(observations)
        errors = self._errors(observations)
        self.errors.add(errors[:, None])
        return errors / self.errors.deviation().clamp(min=1e-6)

    def learn(self, observations: Tensor) -> None:
        self.optimizer.zero_grad()
        self._errors(observations).mean().backward()
        self.optimizer.step()

    def state_dict(self) -> StateDict:
        return {
            "fixed": self.fixed.state_dict(),
            "predictor": self.predictor.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "seen": self.seen.state_dict(),
            "errors": self.errors.state_dict(),
        }

    def load_state_dict(self, state: StateDict) -> None:
        for name in ("fixed", "predictor", "optimizer", "seen", "errors"):
            getattr(self, name).load_state_dict(state[name])

    def _errors(self, observations: Tensor) -> Tensor:
        deviation = self.seen.deviation().clamp(min=1e-6)
        normal = ((observations - self.seen.mean) / deviation).clamp(-FARTHEST, FARTHEST)
        return nn.functional.mse_loss(
            self.predictor(normal), self.fixed(normal), reduction="none"
        ).mean(1)


class Novelties:
    """What is new to all agents together, or, with networks of their own, to each of them."""

    def __init__(
        self, config: NoveltyConfig, observed: int, networks: int, device: torch.device
    ) -> None:
        self.each = [Novelty(config, observed, device) for _ in range(networks)]

    def weight(self, environment_steps: int) -> float:
        return self.each[0].weight(environment_steps)

    def reward(self, observations: Tensor) -> Tensor:
        """Return how new these observations of all agents are: (agents,)."""
        parts = observations.tensor_split(len(self.each))
        return torch.cat([one.reward(seen) for one, seen in zip(self.each, parts, strict=True)])

    def learn(self, seen: Sequence[Tensor]) -> None:
        """Learn from what each of the networks has learned from; from nothing if it did not."""
        if seen:
            for one, observations in zip(self.each, seen, strict=True):
                one.learn(observations)

    def state_dict(self) -> StateDict:
        if len(self.each) == 1:
            return self.each[0].state_dict()
        return {str(agent): one.state_dict() for agent, one in enumerate(self.each)}

    def load_state_dict(self, state: StateDict) -> None:
        for agent, one in enumerate(self.each):
            one.load_state_dict(state if len(self.each) == 1 else state[str(agent)])


class RunningMoments:
    """Mean and variance of everything so far, batch by batch (Chan et al. 1979)."""

    def __init__(self, size: int, device: torch.device) -> None:
        self.count = torch.zeros((), dtype=torch.float64, device=device)
        self.mean = torch.zeros(size, device=device)
        self.squares = torch.zeros(size, device=device)  # sum of squared differences to the mean

    def add(self, rows: Tensor) -> None:
        size = len(rows)
        mean = rows.mean(0)
        away = mean - self.mean
        total = self.count + size
        share = (size / total).float()
        between = away.square() * (self.count * size / total).float()
        self.squares = self.squares + (rows - mean).square().sum(0) + between
        self.mean = self.mean + away * share
        self.count = total

    def deviation(self) -> Tensor:
        """Return the standard deviation, 1 where there is nothing to tell."""
        variance = self.squares / self.count.clamp(min=1).float()
        return torch.where(variance > 0, variance.sqrt(), torch.ones_like(variance))

    def state_dict(self) -> StateDict:
        return {"count": self.count, "mean": self.mean, "squares": self.squares}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, own in self.state_dict().items():
            given = state[name]
            if given.shape != own.shape:
                raise ValueError(f"{name} is {tuple(given.shape)}, here {tuple(own.shape)}")
            setattr(self, name, given.to(own.device, copy=True))
