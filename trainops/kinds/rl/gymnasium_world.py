"""Environments of Gymnasium, as many as there are agents; time limits are kept here."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleEnv, CartPoleVectorEnv
from torch import Tensor

from trainops.kinds.rl.environment import Environment, EnvironmentContext, Frame, Space, StepResult
from trainops.kinds.rl.gymnasium_state import capture, obstacle, put_back
from trainops.kinds.rl.recipes.gymnasium_id import GymnasiumParameters
from trainops.runtime.errors import InputError
from trainops.runtime.job import StateDict

UNLIMITED = -1  # as gymnasium.make wants it said
MANY_STEPS = 1000  # of an episode, where neither the id nor the config says


class GymnasiumWorld:
    """What the recipe gymnasium builds. Raises InputError for an id that cannot be used."""

    def __init__(self, parameters: GymnasiumParameters, context: EnvironmentContext) -> None:
        self.parameters = parameters
        one = self.make_one()
        if not isinstance(one.action_space, spaces.Discrete):
            kind = type(one.action_space).__name__
            raise InputError(
                {"parameters.id": f"{parameters.id} has {kind} actions; allowed: Discrete"}
            )
        self.first_action = int(one.action_space.start)
        self.observed = one.observation_space
        self.is_flat = isinstance(self.observed, spaces.Box) and len(self.observed.shape) == 1
        specified = one.spec.max_episode_steps if one.spec else None
        self.space = Space(
            substrate=f"gymnasium:{parameters.id}",
            position_dim=0,
            fields=(("observation", _size(parameters.id, self.observed)),),
            actions=tuple(f"action {number}" for number in range(int(one.action_space.n))),
            max_steps=parameters.max_steps or _limit_of(parameters.id) or specified or MANY_STEPS,
        )
        one.reset(seed=0)  # some have attributes from then on
        self.obstacle = obstacle(one)
        self.is_cartpole = type(one.unwrapped) is CartPoleEnv

    def make_one(self) -> gymnasium.Env[Any, Any]:
        try:
            return gymnasium.make(
                self.parameters.id,
                max_episode_steps=UNLIMITED,
                disable_env_checker=True,
                **cast(dict[str, Any], self.parameters.options),
            )
        except (gymnasium.error.Error, TypeError, ImportError) as error:
            raise InputError({"parameters.id": f"{self.parameters.id}: {error}"}) from error

    def make(self, count: int, seed: int, device: torch.device) -> Environment:
        if self.is_cartpole and count > 1 and not self.parameters.options:
            return CartPoles(self, count, seed, device)
        return Gymnasiums(self, count, seed, device)

    def scenery(self) -> Mapping[str, Any]:
        return {"id": self.parameters.id, "actions": list(self.space.actions)}

    def flat(self, observation: Any) -> np.ndarray[Any, Any]:
        """Return an observation as numbers: one of n as n of which one is 1."""
        if not self.is_flat:
            observation = spaces.flatten(self.observed, observation)
        return np.asarray(observation, dtype=np.float32)


class Gymnasiums:
    """Environments stepped one after the other."""

    def __init__(self, world: GymnasiumWorld, count: int, seed: int, device: torch.device) -> None:
        self.world, self.count, self.device = world, count, device
        self.limits = torch.full((count,), world.space.max_steps, device=device)
        self.depletion = torch.ones(count, device=device)
        self.ages = np.zeros(count, np.int64)
        self.environments = [world.make_one() for _ in range(count)]
        self.seen = np.zeros((count, world.space.observation_dim), dtype=np.float32)
        for number, each in enumerate(self.environments):
            each.reset(seed=(seed + number) % 2**31)
        self.restart(range(count))

    def observe(self) -> Tensor:
        return torch.from_numpy(self.seen.copy()).to(self.device)

    def masks(self) -> Tensor:
        return torch.ones(self.count, len(self.world.space.actions), device=self.device) > 0

    def step(self, actions: Tensor) -> StepResult:
        rewards, ends = np.zeros(self.count, np.float32), np.zeros(self.count, np.bool_)
        cuts = np.zeros(self.count, np.bool_)
        for number, action in enumerate(actions.tolist()):
            environment = self.environments[number]
            outcome = environment.step(action + self.world.first_action)
            observation, reward, ends[number], cuts[number], _ = outcome
            self.seen[number], rewards[number] = self.world.flat(observation), reward
        return self._outcome(rewards, ends, cuts)

    def restart(self, which: Sequence[int]) -> None:
        for number in which:
            observation, _ = self.environments[number].reset()
            self.seen[number] = self.world.flat(observation)
            self.ages[number] = 0

    def frame(self) -> Frame:
        return {"observation": [round(float(each), 4) for each in self.seen[0]]}

    def tallies(self) -> Mapping[str, list[int]]:
        return {}

    def inexact(self) -> str:
        return self.world.obstacle

    def state_dict(self) -> StateDict:
        return {
            "ages": torch.from_numpy(self.ages.copy()),
            "limits": self.limits,
            "depletion": self.depletion,
            "seen": torch.from_numpy(self.seen.copy()),
            **self._inner(),
        }

    def load_state_dict(self, state: StateDict) -> None:
        for name in ("ages", "limits", "depletion", "seen"):
            if len(state[name]) != self.count:
                raise ValueError(f"{len(state[name])} environments, here {self.count}")
        for name in ("limits", "depletion"):
            setattr(self, name, state[name].to(self.device, copy=True))
        self.ages = state["ages"].numpy().copy()
        self.seen = state["seen"].numpy().copy()
        self._put_back(state)

    def _outcome(self, rewards: Any, ends: Any, cuts: Any) -> StepResult:
        self.ages += 1
        truncated = (cuts | (self.ages >= self.limits.cpu().numpy())) & ~ends
        tensors = (torch.from_numpy(each) for each in (rewards, ends, truncated))
        if self.device.type != "cpu":
            tensors = (each.to(self.device) for each in tensors)
        return StepResult(self.observe(), *tensors)

    def _inner(self) -> StateDict:
        if self.world.obstacle:
            return {}
        return {"environments": [capture(each) for each in self.environments]}

    def _put_back(self, state: StateDict) -> None:
        """Restore what is inside; what cannot be restored begins new episodes."""
        if "environments" not in state:
            self.restart(range(self.count))
            return
        if len(state["environments"]) != self.count:
            raise ValueError(f"{len(state['environments'])} environments, here {self.count}")
        for environment, each in zip(self.environments, state["environments"], strict=True):
            put_back(environment, each)


class CartPoles(Gymnasiums):
    """Many cart poles at once, by Gymnasium's own vector form of the environment.

    It would begin a new episode in the step after an end; here that happens in `restart`, by the
    same draw from its own stream, so that no step is lost.
    """

    def __init__(self, world: GymnasiumWorld, count: int, seed: int, device: torch.device) -> None:
        self.world, self.count, self.device = world, count, device
        self.limits = torch.full((count,), world.space.max_steps, device=device)
        self.depletion = torch.ones(count, device=device)
        self.ages = np.zeros(count, np.int64)
        self.vector: Any = CartPoleVectorEnv(count, max_episode_steps=2**31 - 1)
        self.seen, _ = self.vector.reset(seed=seed % 2**31)

    def step(self, actions: Tensor) -> StepResult:
        self.seen, rewards, ends, _, _ = self.vector.step(actions.cpu().numpy())
        self.vector.prev_done[:] = False
        return self._outcome(rewards, ends, np.zeros(self.count, np.bool_))

    def restart(self, which: Sequence[int]) -> None:
        if len(which):
            rows = list(which)
            drawn = self.vector.np_random.uniform(
                low=self.vector.low, high=self.vector.high, size=(4, len(rows))
            )
            self.vector.state[:, rows] = drawn
            self.vector.steps[rows] = 0
            self.seen[rows] = drawn.T.astype(np.float32)
            self.ages[rows] = 0

    def _inner(self) -> StateDict:
        return {
            "cartpoles": torch.from_numpy(self.vector.state.copy()),
            "random": self.vector.np_random.bit_generator.state,
        }

    def _put_back(self, state: StateDict) -> None:
        cartpoles = state["cartpoles"].numpy()
        if cartpoles.shape != (4, self.count):
            raise ValueError(f"cart poles of shape {cartpoles.shape}, here {(4, self.count)}")
        self.vector.state = cartpoles.copy()
        self.vector.np_random.bit_generator.state = state["random"]


def build(parameters: GymnasiumParameters, context: EnvironmentContext) -> GymnasiumWorld:
    return GymnasiumWorld(parameters, context)


def _size(name: str, space: spaces.Space[Any]) -> int:
    try:
        return int(spaces.flatdim(space))
    except (ValueError, NotImplementedError) as error:
        problem = f"{name} has observations of no fixed size: {error}"
        raise InputError({"parameters.id": problem}) from error


def _limit_of(name: str) -> int | None:
    return gymnasium.spec(name).max_episode_steps
