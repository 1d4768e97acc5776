"""What learners know of a world: many copies of it, stepped at once."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from trainops.runtime.job import StateDict

Frame = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Space:
    """What can be observed and done. `fields` are parts of an observation and their sizes."""

    substrate: str  # "Grid2D", "Aspatial", "gymnasium:CartPole-v1"
    position_dim: int
    fields: tuple[tuple[str, int], ...]
    actions: tuple[str, ...]
    max_steps: int  # of an episode
    has_masks: bool = False
    meters: tuple[str, ...] = ()
    affordances: tuple[str, ...] = ()
    foreign_ids: tuple[str, ...] = ()  # of the fields, in another tool's files

    @property
    def observation_dim(self) -> int:
        return sum(size for _, size in self.fields)

    @property
    def field_ids(self) -> list[str]:
        """Return an identity for each field: its place, name and size."""
        named = [f"{number}:{name}:{size}" for number, (name, size) in enumerate(self.fields)]
        return [hashlib.sha256(each.encode()).hexdigest()[:16] for each in named]

    @property
    def known_as(self) -> tuple[str, ...]:
        """Return the identities that files have of the fields: another tool's, or our own."""
        return self.foreign_ids or tuple(self.field_ids)


class StepResult(NamedTuple):
    """One step of all environments, the first dimension of everything."""

    observations: Tensor  # (environments, observation_dim) float32, of the episode that may end
    rewards: Tensor  # float32
    terminated: Tensor  # bool: there is no more to gain
    truncated: Tensor  # bool: cut, though it could have gone on


class Environment(Protocol):
    """Copies of one world, on the device. An episode that ended waits to be restarted."""

    limits: Tensor  # (environments,) int64: steps of an episode
    depletion: Tensor  # (environments,) float32: factor on how fast meters deplete

    def observe(self) -> Tensor:
        """Return what the agents see now: (environments, observation_dim) float32."""

    def masks(self) -> Tensor:
        """Return which actions have an effect now: (environments, actions) bool."""

    def step(self, actions: Tensor) -> StepResult: ...

    def restart(self, which: Sequence[int]) -> None:
        """Begin new episodes in these."""

    def frame(self) -> Frame:
        """Return what the first environment looks like now, as plain values for a picture."""

    def tallies(self) -> Mapping[str, list[int]]:
        """Return how often each cell was visited and each affordance used."""

    def inexact(self) -> str:
        """Return why its state cannot be restored bit for bit; "" where it can."""

    def state_dict(self) -> StateDict: ...

    def load_state_dict(self, state: StateDict) -> None:
        """Take over a state; where it is not exact, begin new episodes. Raises ValueError."""


class World(Protocol):
    """What a recipe of this kind builds."""

    space: Space

    def make(self, count: int, seed: int, device: torch.device) -> Environment:
        """Return N copies at the beginning of their first episodes."""

    def scenery(self) -> Mapping[str, Any]:
        """Return what does not move, as plain values for a picture."""


@dataclass(frozen=True, slots=True)
class EnvironmentContext:
    """What a recipe knows besides its parameters."""

    seed: int
