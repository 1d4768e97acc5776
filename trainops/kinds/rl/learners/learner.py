"""What every algorithm is, to the population that it learns for."""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from trainops.kinds.rl.config import RlConfig
from trainops.runtime.job import StateDict


class Player(Protocol):
    """Plays by what has been learned, without exploring; for evaluations."""

    def act(self, observations: Tensor, masks: Tensor | None) -> Tensor: ...

    def restarted(self, which: Sequence[int]) -> None:
        """Forget what these agents remember: their next episodes have begun."""


class Learner(Protocol):
    """Chooses actions, and learns from the ring that what came of them is kept in."""

    @property
    def updates(self) -> int:
        """How often weights were moved so far."""

    def act(self, observations: Tensor, masks: Tensor | None, epsilon: float) -> Tensor:
        """Return an action for each agent: (agents,) int64."""

    def recorded(self, taken: slice) -> None:
        """Take note that these slots of the ring have new rows."""

    def restarted(self, which: Sequence[int]) -> None:
        """Forget what these agents remember: their next episodes have begun."""

    def learn(self, step: int, environment_steps: int, novelty_weight: float) -> list[Tensor]:
        """Learn if it is time; return the losses, without gradients. Raises NonFiniteLoss."""

    def recent_observations(self) -> list[Tensor]:
        """Return what novelty learns from, if it is time, of each network; after `learn`."""

    def players(self, count: int) -> list[Player]:
        """Return a player of each network, in N environments."""

    def state_dict(self) -> StateDict:
        """Return parts of the state; "model" is what plays."""

    def load_state_dict(self, state: StateDict) -> None:
        """Take over the parts, by a learner that is thrown away if that fails.

        Raises IncompatibleState, and what torch raises for other shapes.
        """


def annealed(config: RlConfig, environment_steps: int) -> float:
    """Return what learning rate and clip are multiplied by."""
    if not config.anneal:
        return 1.0
    return max(0.0, 1.0 - environment_steps / (config.vector_steps * config.agents))
