"""Random network distillation: what a fixed random network says of a state is hard to predict
as long as the state is new (Burda et al. 2018)."""

from typing import Any

import torch
from torch import Tensor, nn

from trainops.engines.job import StateDict
from trainops.engines.rl.config import NoveltyConfig
from trainops.engines.rl.networks import perceptron
from trainops.engines.rl.schedules import linear

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
        self.seen = Running(observed, device)
        self.errors = Running(1, device)

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


class Running:
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
