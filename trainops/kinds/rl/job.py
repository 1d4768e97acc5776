"""Reinforcement learning: one step is one action of every agent."""

import copy
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from trainops.kinds.rl.config import RlConfig
from trainops.kinds.rl.curriculum import mean
from trainops.kinds.rl.environment import EnvironmentContext, World
from trainops.kinds.rl.evaluation import Evaluation, EvaluationInProgress, Playing
from trainops.kinds.rl.learners.learner import Player
from trainops.kinds.rl.population import Population
from trainops.kinds.rl.provenance import check_provenance, provenance_of
from trainops.runtime import lossless
from trainops.runtime.devices import choose_device
from trainops.runtime.errors import IncompatibleState
from trainops.runtime.job import Metrics, StateDict
from trainops.runtime.position import completed

FAILED_LOADING = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
Evaluated = dict[str, Any]
OPTIONAL = {"best_model", "imported"}  # parts that not every state has


class RlJob:
    """A population that learns, looked at now and then.

    Safe points lie between steps, in the middle of episodes: what is open is part of the state and
    goes on after a resume. Counters of episodes never include an open one. A state from before an
    evaluation says so in "is_to_evaluate", which no other has.
    """

    unit: ClassVar[str] = "step"

    def __init__(self, config: RlConfig, inputs: Mapping[str, Path]) -> None:
        self.config = config
        self.device = choose_device(config.device)
        recipe = config.find_recipe()
        parameters = recipe.parse_parameters(config.parameters)
        self.world: World = recipe.builder()(parameters, EnvironmentContext(config.seed))
        self.population = Population(config, self.world, self.device)
        self.provenance = provenance_of(config, self.world.space)
        self.newest: Evaluated | None = None
        self.best: Evaluated | None = None
        self.first: Evaluated | None = None
        self.best_model: dict[str, Any] | None = None
        self.imported: StateDict | None = None  # what of another tool's file only its exports use
        self.inexact: dict[str, str] = {}
        self.in_parts = self.is_evaluating = False
        self._evaluating: EvaluationInProgress | None = None  # under way; no part of the state

    @property
    def is_same_when_plain(self) -> bool:
        """On the CPU (tests/rl/test_implementations.py); kernels of other devices are untested."""
        return self.device.type == "cpu"

    @property
    def step(self) -> int:
        return self.population.step

    @property
    def total_steps(self) -> int:
        wanted, completed = self.config.episodes, self.population.episodes.completed
        if wanted is not None and completed >= wanted:
            return self.step
        return max(self.step, self.config.vector_steps)

    @property
    def place(self) -> str:
        place = completed("episode", self.population.episodes.completed)
        if not self.is_evaluating:
            return place
        num_steps = self._evaluating.num_steps if self._evaluating else 0
        return f"{place}, step {num_steps} of its evaluation"

    def milestones(self) -> int:
        """Return how many checkpoints have come due by the count of episodes."""
        return self.population.episodes.completed // self.config.checkpoint.every_episodes

    @property
    def patience_seconds(self) -> float:
        """Of several agents, some are always in the middle of an episode."""
        return self.config.checkpoint.finish_episode_seconds if self.config.agents == 1 else 0.0

    @property
    def is_settled(self) -> bool:
        return not bool(self.population.episodes.lengths.any())

    def advance(self) -> Metrics:
        if not self.is_evaluating:
            self.population.advance()
            self.is_evaluating = self._is_due(self.config.evaluation.every_steps)
            if self.is_evaluating and self.in_parts:
                return {}
        metrics = self._evaluate() if self.is_evaluating else {}
        if not self.is_evaluating and self._is_due(self.config.log_every_steps):
            metrics |= self.population.metrics()
        return metrics

    def _is_due(self, every_steps: int) -> bool:
        return self.step % every_steps == 0 or self.step >= self.total_steps

    @property
    def weights(self) -> Mapping[str, str]:
        """The networks of all agents; a new target network is a copy of the one that learns."""
        parts = ("model",) if self.config.algorithm == "ppo" else ("model", "target")
        return dict.fromkeys(parts, "model")

    def state_dict(self) -> StateDict:
        self.population.check_finite()
        parts = self.population.state_dict()
        return {
            "state": {
                **self.population.plain(),
                "provenance": self.provenance,
                "metric": self.newest["return"] if self.newest else None,
                "evaluations": self._evaluations(),
                **({"is_to_evaluate": True} if self.is_evaluating else {}),
            },
            **parts,
            **({"best_model": self.best_model} if self.best_model is not None else {}),
            **({"imported": self.imported} if self.imported is not None else {}),
        }

    def objects(self) -> Mapping[str, Any]:
        """Return what the recipe built; its environments have their generators in their states."""
        return {"world": self.world}

    def load_state_dict(self, state: StateDict) -> None:
        """Build everything anew from the state, then let it take the place of what was there."""
        plain = state.get("state", {})
        changed = check_provenance(plain.get("provenance", {}), self.provenance)
        try:
            population = Population(self.config, self.world, self.device)
            expected = set(population.state_dict()) | {"state", *OPTIONAL}
            if missing := expected - state.keys() - OPTIONAL:
                raise IncompatibleState(f"the state lacks {', '.join(sorted(missing))}")
            if more := state.keys() - expected:
                raise IncompatibleState(f"the state has {', '.join(sorted(more))} besides")
            population.load(plain, state)
            _check_agreement(plain, population)
            evaluations = copy.deepcopy(dict(plain["evaluations"]))
        except FAILED_LOADING as error:
            if isinstance(error, IncompatibleState):
                raise
            raise IncompatibleState(f"the state cannot be read: {error!r}") from error
        best_model = state.get("best_model")
        if (best_model is None) != (evaluations.get("best") is None):
            raise IncompatibleState("the best model is there without its evaluation, or the other")
        self.population, self.best_model = population, _copy(best_model)
        self.imported = state.get("imported")
        self.first, self.best = evaluations.get("first"), evaluations.get("best")
        self.newest = evaluations.get("newest")
        self.is_evaluating, self._evaluating = bool(plain.get("is_to_evaluate")), None
        self._note_what_is_inexact(changed)

    def result(self) -> Mapping[str, Any]:
        population = self.population
        plain = population.plain()
        return {
            "recipe": self.config.recipe,
            "algorithm": self.config.algorithm,
            "episodes": population.episodes.completed,
            "environment_steps": population.environment_steps,
            "updates": population.learner.updates,
            "final": {"return_mean": _mean(population.episodes.recent)},
            "best": {
                "metric": self.config.monitor,
                "mode": self.config.mode,
                "value": self.best["return"] if self.best else None,
                "step": self.best["step"] if self.best else None,
            },
            "world": self.world.scenery(),
            "stage_changes": plain["stage_changes"],
            "stages": plain["stages"],
            "tallies": plain["tallies"],
            "evaluations": self._evaluations(),
            **({"agents": plain["agents"]} if "agents" in plain else {}),
        }

    def _evaluate(self) -> dict[str, float]:
        """Play the fixed episodes, a step at a time if `in_parts`; say what they came to."""
        if self._evaluating is None:
            players = self.population.learner.players(self.config.evaluation.episodes)
            self._evaluating = EvaluationInProgress(players, self._playing)
        is_over = self._evaluating.go_on()
        while not (is_over or self.in_parts):
            is_over = self._evaluating.go_on()
        if not is_over:
            return {}
        found, self._evaluating, self.is_evaluating = self._evaluating.found, None, False
        return self._judged(found)

    def _playing(self, player: Player) -> Playing:
        config = self.config
        return Playing(self.world, player, config.evaluation, config.seed, self.device)

    def _judged(self, found: Sequence[Evaluation]) -> dict[str, float]:
        """Keep the networks where they did no better before."""
        returns = [each.mean_return for each in found]
        top = returns.index(max(returns))
        latest: Evaluated = {
            "step": self.step,
            "episode": self.population.episodes.completed,
            "return": mean(returns),
            "length": mean([each.mean_length for each in found]),
            "recording": found[top].recording,
            **({"returns": returns, "agent": top} if self.config.is_separate else {}),
        }
        self.newest = latest
        self.first = self.first or latest
        value, best = latest["return"], self.best["return"] if self.best else math.nan
        if not math.isfinite(best) or (math.isfinite(value) and value > best):
            self.best = latest
            self.best_model = _copy(self.population.learner.state_dict()["model"])
        best = {"evaluation_return_best": max(returns)} if self.config.is_separate else {}
        return {"evaluation_return": mean(returns), "evaluation_length": latest["length"], **best}

    def _evaluations(self) -> dict[str, Evaluated]:
        found = {"first": self.first, "best": self.best, "newest": self.newest}
        return {name: each for name, each in found.items() if each is not None}

    def _note_what_is_inexact(self, changed: str) -> None:
        why = self.population.environment.inexact()
        if self.config.open_episodes == "flushed":
            why = "open_episodes is flushed"
        if why:
            self.inexact["environment"] = f"open episodes began anew: {why}"
        if changed:
            self.inexact["config"] = changed


def _check_agreement(plain: Mapping[str, Any], population: Population) -> None:
    """Raise IncompatibleState where counters in the state tell of different runs."""
    for name, value in population.plain().items():
        if lossless.dumps(plain[name]) != lossless.dumps(value):
            raise IncompatibleState(
                f"{name} is {plain[name]!r}, but by the rest of the state {value!r}"
            )
    newest = plain["evaluations"].get("newest")
    if plain["metric"] != (newest and newest["return"]):
        raise IncompatibleState(f"metric is {plain['metric']!r}, not that of the newest evaluation")
    if population.replay.count != population.environment_steps:
        raise IncompatibleState(
            f"{population.replay.count} transitions were recorded in "
            f"{population.environment_steps} environment steps"
        )


def _mean(values: list[float]) -> float | None:
    return mean(values) if values else None


def _copy(weights: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the weights as they are now, on the CPU: an alias would follow the training."""
    if weights is None:
        return None
    return {name: each.detach().to("cpu", copy=True) for name, each in weights.items()}
