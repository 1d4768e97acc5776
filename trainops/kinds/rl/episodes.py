"""Which episodes there have been, and how far the open ones are."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainops.kinds.rl.environment import StepResult
from trainops.runtime.checkpoint.stream import Stream
from trainops.runtime.errors import IncompatibleState
from trainops.runtime.job import StateDict

COLUMNS = {
    "agent": (torch.int64, ()),
    "step": (torch.int64, ()),  # of the population, at which it ended
    "length": (torch.int64, ()),
    "return": (torch.float64, ()),
    "survival": (torch.float64, ()),  # length as a share of its limit
    "terminated": (torch.bool, ()),
    "stage": (torch.int64, ()),
}
MAX_WAITING = 4096  # lines
RECENT = 100  # episodes that the mean return is of


class Finished(NamedTuple):
    """One whole episode."""

    agent: int
    length: int
    gained: float
    survival: float
    entropy: float  # of its actions, 1 where all were equally frequent


class Episodes:
    """A line for each whole episode, in the order of their ends, and sums of those still open.

    `completed` episodes were played to their end; the next one has the number `completed`, counted
    from 0. What a stop interrupts is neither logged nor counted: it goes on after the resume.
    """

    def __init__(self, agents: int, actions: int, device: torch.device) -> None:
        """Count how often each of `actions` was chosen; 0: entropies are not asked for."""
        self.gained = torch.zeros(agents, dtype=torch.float64, device=device)
        self.lengths = torch.zeros(agents, dtype=torch.int64, device=device)
        self.chosen = torch.zeros(agents, actions, dtype=torch.int64, device=device)
        self._log = Stream(COLUMNS)
        self._waiting: list[tuple[float, ...]] = []  # lines that the log has not taken yet
        self.recent: list[float] = []  # returns, the newest last
        self.since_point = {"count": 0.0, "return": 0.0, "length": 0.0, "survival": 0.0}

    @property
    def completed(self) -> int:
        return len(self._log) + len(self._waiting)

    @property
    def log(self) -> Stream:
        """Return a line for each whole episode. Lines are put into columns when this is asked."""
        if self._waiting:
            columns = zip(COLUMNS.items(), zip(*self._waiting, strict=True), strict=True)
            self._log.append(
                {n: torch.tensor(each, dtype=kind) for (n, (kind, _)), each in columns}
            )
            self._waiting = []
        return self._log

    def step(self, actions: Tensor, outcome: StepResult) -> None:
        self.gained += outcome.rewards
        self.lengths += 1
        if self.chosen.shape[1]:
            self.chosen.scatter_add_(1, actions[:, None], torch.ones_like(actions)[:, None])

    def finish(
        self, which: Sequence[int], outcome: StepResult, limits: Tensor, step: int,
        stages: Sequence[int],
    ) -> list[Finished]:  # fmt: skip
        """Close the episodes of these agents; return what they were."""
        rows = torch.as_tensor(which, device=self.gained.device)
        lengths, gained, terminated, limit = (
            each[rows].tolist() for each in (self.lengths, self.gained, outcome.terminated, limits)
        )
        survival = [length / most for length, most in zip(lengths, limit, strict=True)]
        lines = zip(which, lengths, gained, survival, terminated, stages, strict=True)
        self._waiting += [(agent, step, *rest) for agent, *rest in lines]
        if len(self._waiting) >= MAX_WAITING:
            _ = self.log
        mixed = entropies(self.chosen[rows]).tolist()
        columns = zip(which, lengths, gained, survival, mixed, strict=True)
        finished = [Finished(*each) for each in columns]
        self.drop(rows)
        for each in finished:
            self._count(each)
        return finished

    def drop(self, rows: Tensor) -> None:
        """Forget the open episodes of these agents, as if they had never begun."""
        for each in (self.gained, self.lengths, self.chosen):
            each.index_fill_(0, rows, 0)

    def point(self) -> dict[str, float]:
        """Return means over the episodes since the last point, and start anew."""
        since, count = self.since_point, self.since_point["count"]
        names = ("return", "length", "survival") if count else ()
        means = {name: since[name] / count for name in names}
        if self.recent:
            means["return_mean"] = sum(self.recent) / len(self.recent)
        self.since_point = dict.fromkeys(since, 0.0)
        return means

    def plain(self) -> dict[str, Any]:
        return {
            "episodes_completed": self.completed,
            "next_episode": self.completed,
            "recent_returns": list(self.recent),
            "since_point": {name: float(value) for name, value in self.since_point.items()},
        }

    def by_agent(self) -> list[dict[str, Any]]:
        """Return for each agent how many it completed, and its mean return of about the newest."""
        agents = len(self.lengths)
        first = max(self.log.first_row, self.completed - RECENT * agents)
        everybody, newest = self.log.column("agent"), self.log.column("agent", first)
        returns = self.log.column("return", first)
        counts = torch.bincount(everybody[everybody >= 0], minlength=agents)
        shares = torch.bincount(newest, minlength=agents)
        sums = torch.bincount(newest, returns, minlength=agents)
        rows = zip(counts.tolist(), shares.tolist(), sums.tolist(), strict=True)
        return [
            {"episodes": count, "return_mean": total / share if share else None}
            for count, share, total in rows
        ]

    def state_dict(self) -> StateDict:
        """Return the open episodes; the log and the plain values are other parts."""
        return {"gained": self.gained, "lengths": self.lengths, "chosen": self.chosen}

    def load(self, plain: Mapping[str, Any], state: StateDict, log: object) -> None:
        """Take over. Raises IncompatibleState, ValueError."""
        if not isinstance(log, Stream) or log.columns != self._log.columns or log.first_row:
            raise IncompatibleState("episodes is no stream of episodes")
        if plain["episodes_completed"] != len(log) or plain["next_episode"] != len(log):
            raise IncompatibleState(
                f"episodes_completed is {plain['episodes_completed']}, next_episode "
                f"{plain['next_episode']}; {len(log)} are logged"
            )
        for name, own in self.state_dict().items():
            given = state[name]
            if (given.shape, given.dtype) != (own.shape, own.dtype):
                raise ValueError(f"{name} is {tuple(given.shape)}, here {tuple(own.shape)}")
            setattr(self, name, given.to(own.device, copy=True))
        self._log, self._waiting = log.copy(), []
        self.recent = [float(value) for value in plain["recent_returns"]]
        self.since_point = {name: float(plain["since_point"][name]) for name in self.since_point}

    def _count(self, each: Finished) -> None:
        self.recent = [*self.recent, each.gained][-RECENT:]
        since = self.since_point
        since["count"] += 1
        since["return"] += each.gained
        since["length"] += each.length
        since["survival"] += each.survival


def entropies(chosen: Tensor) -> Tensor:
    """Return how evenly actions were chosen, 0 to 1: (rows,) of counts (rows, actions)."""
    if chosen.shape[1] < 2:
        return torch.zeros(len(chosen), dtype=torch.float64, device=chosen.device)
    shares = chosen.double() / chosen.sum(1, keepdim=True).clamp(min=1)
    found = -torch.special.xlogy(shares, shares).sum(1)
    evenly: Tensor = found / math.log(chosen.shape[1])
    return evenly
