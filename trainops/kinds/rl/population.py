"""Agents in their environments, and everything that a step of them changes."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from trainops.kinds.rl.config import RlConfig
from trainops.kinds.rl.curriculum import Curriculum, mean
from trainops.kinds.rl.environment import StepResult, World
from trainops.kinds.rl.episodes import Episodes
from trainops.kinds.rl.learners.separate import make_learner
from trainops.kinds.rl.novelty import Novelties
from trainops.kinds.rl.replay import Replay
from trainops.kinds.rl.schedules import epsilon
from trainops.kinds.rl.seeds import seed_for
from trainops.runtime.errors import NonFiniteLoss
from trainops.runtime.job import Metrics, StateDict


class Population:
    """All agents step at once. Each has an environment and a stage; networks as configured."""

    def __init__(self, config: RlConfig, world: World, device: torch.device) -> None:
        self.config, self.world, self.device = config, world, device
        space = world.space
        self.replay = Replay(space, config.agents, config.ring_capacity, device)
        self.learner = make_learner(config, space, device, self.replay)
        self.novelty: Novelties | None = None
        if config.novelty.weight or config.novelty.end:
            networks = config.agents if config.is_separate else 1
            self.novelty = Novelties(config.novelty, space.observation_dim, networks, device)
        seed = seed_for(config.seed, "environment")
        self.environment = world.make(config.agents, seed, device)
        self.curriculum = Curriculum(config.curriculum, config.agents, config.seed)
        counted = len(space.actions) if config.curriculum.rule == "adaptive" else 0
        self.episodes = Episodes(config.agents, counted, device)
        self.losses = torch.zeros(2, dtype=torch.float64, device=device)  # sum and count
        self.step = 0
        self._apply_stages(range(config.agents))
        self._look()

    @property
    def environment_steps(self) -> int:
        return self.step * self.config.agents

    @property
    def epsilon(self) -> float:
        completed = self.episodes.completed
        return epsilon(self.config.exploration, self.environment_steps, completed)

    def advance(self) -> None:
        """Let every agent do one thing, and learn from what came of it."""
        observations, masks = self.observations, self.masks
        actions = self.learner.act(observations, masks, self.epsilon)
        outcome = self.environment.step(actions)
        novelty = self.novelty.reward(outcome.observations) if self.novelty else None
        next_masks = None if masks is None else self.environment.masks()
        taken = self.replay.add(observations, actions, outcome, novelty, masks, next_masks)
        self.learner.recorded(taken)
        self.step += 1
        self.episodes.step(actions, outcome)
        ended = outcome.terminated | outcome.truncated
        has_ended = bool(ended.any())
        if has_ended:
            self._finish(ended.nonzero().flatten().tolist(), outcome)
        self._learn()
        self._look(None if has_ended else outcome.observations)

    def metrics(self) -> Metrics:
        """Return the points of this step, and start new means. Raises NonFiniteLoss."""
        self.check_finite()
        total, count = self.losses.tolist()
        self.losses.zero_()
        learner, replay = self.learner, self.replay
        metrics = self.episodes.point() | {"episodes": float(self.episodes.completed)}
        metrics |= {"environment_steps": float(self.environment_steps)}
        metrics |= {"updates": float(learner.updates)}
        if count:
            metrics["loss"] = total / count
        if self.config.algorithm != "ppo":
            metrics |= {"epsilon": self.epsilon, "buffer_fill": len(replay) / replay.slots}
        if self.novelty is not None:
            metrics["novelty_weight"] = self.novelty.weight(self.environment_steps)
        if self.curriculum.stages:
            metrics["stage"] = mean([float(stage) for stage in self.curriculum.stages])
        return metrics

    def check_finite(self) -> None:
        total = float(self.losses[0])
        if not math.isfinite(total):  # on the CPU every loss was looked at before weights moved
            raise NonFiniteLoss(self.step, total)

    def plain(self) -> dict[str, Any]:
        """Return the JSON part of the state."""
        return {
            "step": self.step,
            "environment_steps": self.environment_steps,
            **self.episodes.plain(),
            "epsilon": self.epsilon,
            "updates": self.learner.updates,
            "stages": list(self.curriculum.stages),
            "stage_changes": [list(change) for change in self.curriculum.changes],
            "tallies": dict(self.environment.tallies()),
            **self._agents(),
        }

    def state_dict(self) -> StateDict:
        novelty = {} if self.novelty is None else {"novelty": self.novelty.state_dict()}
        learned = self.learner.state_dict()
        return {
            **learned,
            "learning": learned["learning"] | self.replay.place(),
            "replay": self.replay.stream(),
            "environment": self.environment.state_dict(),
            "curriculum": self.curriculum.state_dict(),
            "open_episodes": self.episodes.state_dict() | {"losses": self.losses},
            "episodes": self.episodes.log,
            **novelty,
        }

    def load(self, plain: Mapping[str, Any], state: StateDict) -> None:
        """Take over a state, by a population that is thrown away if that fails.

        Where environments cannot be put back bit for bit, or the config wants it so, episodes begin
        anew, and those that were open are not counted; their steps stay in the ring.
        """
        learning = state["learning"]
        self.replay.require_capacity(learning["capacity"])
        self.learner.load_state_dict(state)
        self.replay.load(state["replay"], learning["breaks"], learning["floor"])
        if self.novelty is not None:
            self.novelty.load_state_dict(state["novelty"])
        self.environment.load_state_dict(state["environment"])
        self.curriculum.load_state_dict(state["curriculum"])
        self.episodes.load(plain, state["open_episodes"], state["episodes"])
        self.losses.copy_(state["open_episodes"]["losses"])
        self.step = int(plain["step"])
        if self.environment.inexact() or self.config.open_episodes == "flushed":
            self._begin_anew()
        self._look()

    def _begin_anew(self) -> None:
        """Drop the open episodes, and begin new ones."""
        everybody = range(self.config.agents)
        if not self.environment.inexact():  # those that are have begun new ones already
            self.environment.restart(everybody)
        self.episodes.drop(torch.arange(self.config.agents, device=self.device))
        self.replay.cut()
        self.learner.restarted(everybody)

    def _agents(self) -> dict[str, Any]:
        """Return what each agent did, where what it did is of its own network."""
        return {"agents": self.episodes.by_agent()} if self.config.is_separate else {}

    def _finish(self, which: Sequence[int], outcome: StepResult) -> None:
        """Log the episodes that ended, choose the stages of the next, and begin them."""
        curriculum, environment = self.curriculum, self.environment
        stages = [curriculum.stages[agent] if curriculum.stages else 0 for agent in which]
        finished = self.episodes.finish(which, outcome, environment.limits, self.step, stages)
        if curriculum.stages:
            for each in finished:
                curriculum.episode_done(
                    each.agent, survival=each.survival, gained=each.gained, entropy=each.entropy,
                    episodes=self.episodes.completed,
                )  # fmt: skip
            self._apply_stages(which)
        environment.restart(which)
        self.learner.restarted(which)

    def _apply_stages(self, which: Sequence[int]) -> None:
        if not self.curriculum.stages:
            return
        for agent in which:
            stage = self.curriculum.stage(agent)
            self.environment.limits[agent] = stage.max_steps or self.world.space.max_steps
            self.environment.depletion[agent] = stage.depletion

    def _learn(self) -> None:
        weight = self.novelty.weight(self.environment_steps) if self.novelty else 0.0
        losses = self.learner.learn(self.step, self.environment_steps, weight)
        if losses:
            total = self.losses[0]
            for loss in losses:
                total += loss
            self.losses[1] += len(losses)
        if self.novelty is not None:
            self.novelty.learn(self.learner.recent_observations())

    def _look(self, seen: Tensor | None = None) -> None:
        self.observations = self.environment.observe() if seen is None else seen
        self.masks = self.environment.masks() if self.world.space.has_masks else None
