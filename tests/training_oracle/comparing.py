"""One config, trained by the engine and by the plain loop: equal after every step.

The engine's modules are named here only.
"""

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.engines.contract import make_dirty
from tests.training_oracle import losses, plain
from trainops.kind import KINDS
from trainops.learning.ingredients import Context
from trainops.runtime.errors import NonFiniteLoss

# Means of more than one number are sums in float64. The engine adds the batches of a step first,
# and torch adds several rows at once, so that the last bits may differ from a sum in a row.
MEANS = {"rel": 1e-12, "abs": 1e-300}


def parse(config: Mapping[str, Any]) -> Any:
    return KINDS["training"].parse_config({"device": "cpu", **config})


def make_job(config: Any, inputs: Mapping[str, Path]) -> Any:
    make_dirty()  # it starts the random streams itself
    return KINDS["training"].make_job(config, inputs)


def make_ingredients(config: Any, inputs: Mapping[str, Path]) -> Any:
    """Return what the config's recipe makes, with a plain form of the built-in losses."""
    seed(config.seed)
    recipe = config.find_recipe()
    parameters = recipe.parse_parameters(config.parameters)
    made = recipe.builder()(parameters, Context(config.seed, inputs, {}))
    return replace(made, **losses.plain(config.recipe, parameters, made))


def seed(number: int) -> None:
    """Start Python's, NumPy's and torch's global streams."""
    random.seed(number)
    np.random.seed(number % 2**32)  # noqa: NPY002
    torch.manual_seed(number)


def require_equal(
    raw: Mapping[str, Any], inputs: Mapping[str, Path] | None = None
) -> plain.Training:
    """Train both; raise AssertionError at the first step that differs. Return the plain one."""
    config, inputs = parse(raw), inputs or {}
    expected = plain.train(make_ingredients(config, inputs), config)
    job = make_job(config, inputs)
    curve = Curve(config.log_every_steps)
    for number, step in enumerate(expected.steps, 1):
        assert rate_of(job) == step.learning_rate, number
        points = job.advance()
        assert job.step == number
        require_equal_state(job.state_dict(), step, number)
        assert points == curve.points_of(number, step), number
    if expected.diverged:
        with pytest.raises(NonFiniteLoss):
            job.advance()
    else:
        assert job.step == job.total_steps, "the engine goes on, or was stopped too early"
        require_equal_end(job, expected, config)
    return expected


def rate_of(job: Any) -> float:
    state = job.state_dict()
    rate = float(state["optimizer"][0]["param_groups"][0]["lr"])
    assert state["state"]["learning_rate"] == rate
    return rate


def require_equal_state(state: Mapping[str, Any], step: plain.Step, number: int) -> None:
    require_equal_tensors(state["model"], step.weights, number)
    assert len(state["optimizer"]) == len(step.optimizers)
    for own, theirs in zip(state["optimizer"], step.optimizers, strict=True):
        assert own["param_groups"] == theirs["param_groups"], number
        assert own["state"].keys() == theirs["state"].keys(), number
        for index, moments in theirs["state"].items():
            require_equal_tensors(own["state"][index], moments, number)
    schedules = state.get("scheduler", [])
    assert [without_functions(each) for each in schedules] == [
        without_functions(each) for each in step.schedules
    ], number


def without_functions(schedule: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schedule's state without its functions, of which each has its own."""
    return {name: each for name, each in schedule.items() if name != "lr_lambdas"}


def require_equal_tensors(found: Mapping[str, Any], expected: Mapping[str, Any], at: int) -> None:
    assert found.keys() == expected.keys(), at
    for name, value in expected.items():
        assert is_equal(found[name], value), f"{name} differs after step {at}"


def is_equal(found: Any, expected: Any) -> bool:
    """Whether both are the same, also where they are not a number: weights may have diverged."""
    if not torch.is_tensor(expected) or not expected.is_floating_point():
        return bool(torch.is_tensor(found) == torch.is_tensor(expected) and (found == expected))
    are_numbers = expected == expected
    return (
        found.dtype == expected.dtype
        and torch.equal(found == found, are_numbers)
        and torch.equal(found[are_numbers], expected[are_numbers])
    )


def require_equal_end(job: Any, expected: plain.Training, config: Any) -> None:
    state, result = job.state_dict(), job.result()
    assert result["stopped_early"] == expected.stopped_early
    assert result["epochs"] == state["state"]["epoch"] == len(expected.epochs)
    assert result["steps"] == len(expected.steps)
    assert result["samples_seen"] == sum(step.num_examples for step in expected.steps)
    best = result["best"]
    assert (best["metric"], best["mode"]) == (config.monitor, config.mode)
    assert best["epoch"] == state["state"]["best_epoch"] == expected.best_epoch
    assert best["value"] == (None if expected.best_value is None else of(expected.best_value))
    assert ("best_model" in state) == (expected.best_weights is not None)
    if expected.best_weights is not None:
        require_equal_tensors(state["best_model"], expected.best_weights, expected.best_epoch)
    lines = [
        {name: value for name, value in line.items() if name not in ("epoch", "learning_rate")}
        for line in state["state"]["training_history"]
    ]
    assert lines == [of(epoch) for epoch in expected.epochs][-len(lines) :]
    assert len(lines) == min(100, len(expected.epochs))


class Curve:
    """The points that are recorded: every few steps, and at the end of each epoch."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.loss_sum, self.count, self.epoch = 0.0, 0, 0

    def points_of(self, number: int, step: plain.Step) -> Any:
        self.loss_sum += step.loss * step.num_examples
        self.count += step.num_examples
        if number % self.every and step.metrics is None:
            return {}
        points = {"train_loss": self.loss_sum / self.count}  # the mean since the last point
        self.loss_sum, self.count = 0.0, 0
        if step.metrics is not None:
            self.epoch += 1
            ends = {"learning_rate": step.next_learning_rate, "epoch": float(self.epoch)}
            points = {**step.metrics, **ends, **points}
        return of(points)


def of(value: Any) -> Any:
    """Return what equals these means."""
    return pytest.approx(value, **MEANS, nan_ok=True)
