"""Deep Q-learning: double, dueling, n-step and prioritized, each of them an option."""

import copy
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from trainops.kinds.rl.config import RlConfig
from trainops.kinds.rl.environment import Space
from trainops.kinds.rl.implementation import make_adam, make_follow
from trainops.kinds.rl.learners.learner import Player, annealed
from trainops.kinds.rl.networks import q_network
from trainops.kinds.rl.priorities import Priorities
from trainops.kinds.rl.replay import Batch, Ring
from trainops.kinds.rl.schedules import linear
from trainops.kinds.rl.seeds import generator
from trainops.kinds.rl.targets import NEVER, importance, one_step, q_target
from trainops.runtime.job import StateDict


class DqnLearner:
    """A network learns the value of each action from transitions drawn from a ring."""

    has_memory: ClassVar[bool] = False  # that moves on also where an agent explores

    def __init__(self, config: RlConfig, space: Space, device: torch.device, replay: Ring) -> None:
        self.config, self.space, self.device = config, space, device
        self.replay = replay
        self.online = self.make_network().to(device)
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.optimizer = make_adam(self.online, config)
        self._follow = make_follow()
        self.priorities: Priorities | None = None
        if config.replay.prioritized:
            self.priorities = Priorities(self.replay.slots, config.replay.alpha, device)
        self.exploration = generator(config.seed, "exploration", device)
        self.drawing = generator(config.seed, "replay", device)
        self.updates = 0
        self._learned_from: Tensor | None = None

    def make_network(self) -> nn.Module:
        config = self.config
        return q_network(
            self.space.observation_dim, len(self.space.actions), config.network,
            dueling=config.dqn.dueling,
        )  # fmt: skip

    @torch.no_grad()
    def act(self, observations: Tensor, masks: Tensor | None, epsilon: float) -> Tensor:
        count = len(observations)
        explores = torch.rand(count, generator=self.exploration, device=self.device) < epsilon
        how_many = int(explores.sum())
        if how_many == count and not self.has_memory:
            return self.anything(count, masks)
        greedy = self.greedy(observations, masks)
        if not how_many:
            return greedy
        return torch.where(explores, self.anything(count, masks), greedy)

    def anything(self, count: int, masks: Tensor | None) -> Tensor:
        """Return random actions, of those that can be done."""
        shape = (count, len(self.space.actions))
        keys = torch.rand(shape, generator=self.exploration, device=self.device)
        return (keys if masks is None else keys.masked_fill(~masks, -1.0)).argmax(1)

    def greedy(self, observations: Tensor, masks: Tensor | None) -> Tensor:
        return best(self.online(observations), masks)

    def recorded(self, taken: slice) -> None:
        if self.priorities is not None:
            self.priorities.add(taken)

    def restarted(self, which: Sequence[int]) -> None:
        """A network without memory has nothing to forget."""

    def learn(self, step: int, environment_steps: int, novelty_weight: float) -> list[Tensor]:
        self._learned_from = None
        dqn = self.config.dqn
        if step % dqn.train_every or self.replay.count < max(dqn.learning_starts, self.least()):
            return []
        rate = self.config.learning_rate * annealed(self.config, environment_steps)
        self.optimizer.set_rate(rate)
        return [
            self.update(step, environment_steps, novelty_weight) for _ in range(dqn.gradient_steps)
        ]

    def least(self) -> int:
        """Return how many rows there must be to draw from."""
        return 1

    def update(self, step: int, environment_steps: int, novelty_weight: float) -> Tensor:
        """Move the weights once; return the loss."""
        numbers, weights = self._draw(environment_steps)
        batch = self.replay.at(numbers)
        self._learned_from = batch.next_observations
        with torch.no_grad():
            targets = self.targets(numbers, batch, novelty_weight)
        values = self.online(batch.observations).gather(1, batch.actions[:, None]).squeeze(1)
        loss = mean_loss(values, targets, weights)
        self.move(loss, step)
        if self.priorities is not None:
            self.priorities.update(numbers % self.replay.slots, (values - targets).detach())
        return loss.detach()

    def targets(self, numbers: Tensor, batch: Batch, novelty_weight: float) -> Tensor:
        """Return what the values of these rows' actions are moved towards; `batch` is the rows."""
        config, replay = self.config, self.replay
        if config.dqn.n_step == 1:
            horizon = one_step(batch.all_rewards(novelty_weight), batch.terminated, config.discount)
            led_to = batch
        else:
            horizon = replay.horizon(numbers, config.dqn.n_step, config.discount, novelty_weight)
            led_to = replay.at(numbers + horizon.last * replay.agents)
        online = self.online(led_to.next_observations) if config.dqn.double else None
        valued = self.target(led_to.next_observations)
        return q_target(horizon.returns, horizon.discounts, valued, online, led_to.next_masks)

    def move(self, loss: Tensor, step: int) -> None:
        """Move the weights, and let the target follow. Raises NonFiniteLoss."""
        self.optimizer.move(loss, step)
        self.updates += 1
        dqn = self.config.dqn
        if dqn.target_tau is not None:
            self._follow(self.target, self.online, dqn.target_tau)
        elif self.updates % dqn.target_every == 0:
            self._follow(self.target, self.online, 1.0)

    def recent_observations(self) -> list[Tensor]:
        return [] if self._learned_from is None else [self._learned_from]

    def players(self, count: int) -> list[Player]:
        return [Greedy(self)]

    def state_dict(self) -> StateDict:
        priorities = {} if self.priorities is None else {"priorities": self.priorities.saved()}
        return {
            "model": self.online.state_dict(),
            "target": self.target.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "learning": {
                "updates": self.updates,
                "exploration": self.exploration.get_state(),
                "drawing": self.drawing.get_state(),
                "largest_priority": self.priorities.largest if self.priorities else None,
            },
            **priorities,
        }

    def load_state_dict(self, state: StateDict) -> None:
        learning = state["learning"]
        self.online.load_state_dict(state["model"])
        self.target.load_state_dict(state["target"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.priorities is not None:
            self.priorities.load(state["priorities"], learning["largest_priority"])
        self.updates = int(learning["updates"])
        self.exploration.set_state(learning["exploration"])
        self.drawing.set_state(learning["drawing"])

    def _draw(self, environment_steps: int) -> tuple[Tensor, Tensor | None]:
        """Return the numbers of rows, and how much each counts."""
        size, replay = self.config.dqn.batch_size, self.replay
        if self.priorities is None:
            return replay.draw(size, self.drawing), None
        config = self.config.replay
        slots, likely = self.priorities.draw(size, self.drawing)
        beta = linear(config.beta, 1.0, config.beta_steps, environment_steps)
        behind = ((replay.count - 1 - slots) % replay.slots).clamp(max=len(replay) - 1)
        return replay.count - 1 - behind, importance(likely, len(replay), beta)


class Greedy:
    """Plays the best action."""

    def __init__(self, learner: DqnLearner) -> None:
        self.learner = learner

    def act(self, observations: Tensor, masks: Tensor | None) -> Tensor:
        return self.learner.greedy(observations, masks)

    def restarted(self, which: Sequence[int]) -> None:
        """A network without memory has nothing to forget."""


def mean_loss(values: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """Return Huber's loss, each of the batch weighted where there are weights."""
    if weights is None:
        return nn.functional.smooth_l1_loss(values, targets)
    return (nn.functional.smooth_l1_loss(values, targets, reduction="none") * weights).mean()


def best(values: Tensor, masks: Tensor | None) -> Tensor:
    return (values if masks is None else values.masked_fill(~masks, NEVER)).argmax(-1)
