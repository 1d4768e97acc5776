"""Which stage each agent is at: how hard the world is for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from trainops.kinds.rl.config import CurriculumConfig, Stage
from trainops.kinds.rl.seeds import generator
from trainops.runtime.job import StateDict

TRACKED = ("survivals", "returns", "entropies")
MAX_CHANGES = 2000  # of stages that are remembered, the newest


@dataclass(slots=True)
class Tracker:
    """What one agent did at its stage: its newest episodes there, the oldest first."""

    survivals: list[float] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    episodes: int = 0  # at this stage

    def add(self, survival: float, gained: float, entropy: float, window: int) -> None:
        self.episodes += 1
        for kept, value in (
            (self.survivals, survival), (self.returns, gained), (self.entropies, entropy),
        ):  # fmt: skip
            kept.append(value)
            del kept[:-window]

    @property
    def progress(self) -> float:
        """Return how much better the newer half of the episodes went than the older."""
        half = len(self.returns) // 2
        if not half:
            return 0.0
        return mean(self.returns[-half:]) - mean(self.returns[:half])


class Curriculum:
    """Stages of all agents.

    adaptive: an agent advances when it survives, learns no worse than before and has made up its
    mind (entropy); it retreats when it does not survive. adversarial: each episode's
    stage is drawn by rank of what the agent might still gain there, the best return that it had
    there less its newest ones (an estimate of regret, as in prioritized level replay, Jiang et al.
    2021, 3.2).
    """

    def __init__(self, config: CurriculumConfig, agents: int, seed: int) -> None:
        self.config = config
        followed = 0 if config.rule == "none" else agents
        self.stages = [0] * followed
        self.trackers = [Tracker() for _ in range(followed)]
        self.gains: list[list[list[float]]] = [[[] for _ in config.stages] for _ in range(followed)]
        self.changes: list[list[int]] = []  # [episodes completed, agent, stage]
        self.generator = generator(seed, "curriculum")

    def stage(self, agent: int) -> Stage:
        return self.config.stages[self.stages[agent]] if self.stages else Stage()

    def episode_done(
        self, agent: int, *, survival: float, gained: float, entropy: float, episodes: int
    ) -> None:
        """Take a whole episode into account; episodes cut by a stop are not counted."""
        rule = self.config.rule
        if rule == "none":
            return
        before = self.stages[agent]
        if rule == "adaptive":
            tracker = self.trackers[agent]
            tracker.add(survival, gained, entropy, self.config.window)
            stage = before + self._direction(tracker)
        else:
            kept = self.gains[agent][before]
            kept.append(gained)
            del kept[: -self.config.window]
            stage = self._draw(agent)
        stage = min(max(stage, 0), len(self.config.stages) - 1)
        if stage != before:
            self.stages[agent] = stage
            if rule == "adaptive":
                self.trackers[agent] = Tracker()
            self.changes = [*self.changes, [episodes, agent, stage]][-MAX_CHANGES:]

    def state_dict(self) -> StateDict:
        window = self.config.window
        return {
            "stages": list(self.stages),
            "trackers": {
                name: padded([getattr(each, name) for each in self.trackers], window)
                for name in TRACKED
            }
            | {"episodes": [each.episodes for each in self.trackers]},
            "gains": padded([kept for agent in self.gains for kept in agent], window),
            "changes": [list(change) for change in self.changes],
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state. Raises ValueError where it is of other agents or stages."""
        agents, num_stages = len(self.stages), max(1, len(self.config.stages))
        if len(state["stages"]) != agents or not all(0 <= s < num_stages for s in state["stages"]):
            raise ValueError(f"stages {state['stages']} of {agents} agents and {num_stages} stages")
        columns = [unpadded(state["trackers"][name]) for name in TRACKED]
        episodes, gains = state["trackers"]["episodes"], unpadded(state["gains"])
        if len(gains) != sum(map(len, self.gains)) or len(episodes) != len(self.trackers):
            raise ValueError("the curriculum's memory is of other agents or stages")
        self.stages = list(state["stages"])
        self.trackers = [Tracker(*each) for each in zip(*columns, episodes, strict=True)]
        self.gains = [
            gains[first : first + num_stages] for first in range(0, len(gains), num_stages)
        ]
        self.changes = [list(change) for change in state["changes"]]
        self.generator.set_state(state["generator"])

    def _direction(self, tracker: Tracker) -> int:
        config = self.config
        if tracker.episodes < config.min_episodes:
            return 0
        survival, progress = mean(tracker.survivals), tracker.progress
        has_decided = mean(tracker.entropies) <= config.max_entropy
        if survival >= config.advance_at and progress >= 0 and has_decided:
            return 1
        return -1 if survival <= config.retreat_at else 0

    def _draw(self, agent: int) -> int:
        """Draw a stage by rank ** (-1 / temperature); those never tried rank first."""
        regrets = [max(kept) - mean(kept) if kept else float("inf") for kept in self.gains[agent]]
        order = sorted(range(len(regrets)), key=lambda stage: (-regrets[stage], stage))
        weights = torch.zeros(len(order), dtype=torch.float64)
        for rank, stage in enumerate(order, start=1):
            weights[stage] = rank ** (-1 / self.config.temperature)
        return int(torch.multinomial(weights, 1, generator=self.generator))


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def padded(rows: Sequence[Sequence[float]], width: int) -> dict[str, Tensor]:
    """Return lists of at most `width` numbers as a table, and their lengths."""
    table = torch.zeros(len(rows), width, dtype=torch.float64)
    for number, row in enumerate(rows):
        table[number, : len(row)] = torch.tensor(row, dtype=torch.float64)
    return {"values": table, "lengths": torch.tensor([len(row) for row in rows], dtype=torch.int64)}


def unpadded(state: Mapping[str, Tensor]) -> list[list[float]]:
    """Undo padded."""
    rows = zip(state["values"].tolist(), state["lengths"].tolist(), strict=True)
    return [row[:length] for row, length in rows]
