"""Trading on a model: its scores of all bars, a direction where they are far enough from 0.

Every score is made of its bar and those before it; the network judges many bars at a time.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from trainops.kinds.backtest.recipes.model import BEST_BY, ModelParameters
from trainops.kinds.backtest.recipes.rules import standing_signals
from trainops.kinds.backtest.strategy import Signals, Strategy, StrategyContext
from trainops.market.bars import Floats
from trainops.market.compiled import compiled
from trainops.market.network import Pipeline
from trainops.market.prices import Prices
from trainops.market.times import iso
from trainops.runtime import monitors
from trainops.runtime.checkpoint.manifest import Candidate, read_manifest
from trainops.runtime.checkpoint.store import CheckpointStore
from trainops.runtime.errors import CheckpointCorrupted, InputError
from trainops.runtime.job import StateDict

log = logging.getLogger(__name__)

SAME_INTERVAL = 1.5  # so many times longer or shorter are bars at most; weekends count


@dataclass(frozen=True, slots=True)
class Trained:
    """What a training left: the pipeline, and the weights of its network."""

    pipeline: Pipeline
    weights: StateDict
    digest: str  # of the checkpoint they are from

    def scores(self, prices: Prices) -> Floats:
        network = self.pipeline.network()
        network.load_state_dict(self.weights)
        return self.pipeline.scores(prices, 0, network)


def build(parameters: ModelParameters, context: StrategyContext) -> Strategy:
    trained = read_trained(parameters, context.inputs)
    return Strategy(vector=partial(vector, parameters, trained), identity={"model": trained.digest})


def read_trained(parameters: ModelParameters, inputs: Mapping[str, Path]) -> Trained:
    """Return what is in the training's final checkpoint, every byte verified. Raises InputError."""
    if parameters.operation not in inputs:
        raise _refused(f"the model of {parameters.operation} was not given")
    path = inputs[parameters.operation]
    try:
        digest = read_manifest(path).digest
        state = CheckpointStore(path.parent, identity={}).load(Candidate(path, digest))
    except CheckpointCorrupted as error:
        raise _refused(f"the model of {parameters.operation} is incomplete: {error}") from error
    part = _part_of(parameters.weights, state)
    if not {part, "constants"} <= state.keys():
        raise _refused(f"its checkpoint has {', '.join(state)}; needed: {part} and constants")
    return Trained(Pipeline(state["constants"]), state[part], digest)


def _part_of(weights: str, state: StateDict) -> str:
    """Return the part of a training's state that has these weights. Raises InputError."""
    metric = weights.removeprefix(BEST_BY)
    if metric == weights:
        return monitors.BEST_MODEL if weights == "best" else "model"
    further = state["state"].get(monitors.STATE_KEY, {})
    if metric not in further:
        by_others = ", ".join(f"{BEST_BY}{name}" for name in further) or "none by another metric"
        allowed = f"best (by the metric in `monitor` of the training), last, {by_others}"
        raise InputError({"parameters.weights": f"got {weights}; allowed: {allowed}"})
    return monitors.part_of(metric)


def vector(parameters: ModelParameters, trained: Trained, prices: Prices) -> Signals:
    _require_same_interval(trained.pipeline.constants, prices)
    scores = trained.scores(prices)
    if parameters.bars == "unseen":
        scores = _of_unseen(scores, trained.pipeline.constants, prices)
    return standing_signals(
        standing(scores, parameters.enter, parameters.leave), prices, parameters
    )


@compiled
def standing(scores: Floats, enter: float, leave: float) -> Floats:
    """Return the direction after each bar; comparisons with a NaN are false and change nothing."""
    directions, direction = np.empty(len(scores)), 0.0
    for i in range(len(scores)):
        score = scores[i]
        if score > enter:
            direction = 1.0
        elif score < -enter:
            direction = -1.0
        elif (direction > 0 and score < leave) or (direction < 0 and score > -leave):
            direction = 0.0
        directions[i] = direction
    return directions


def _of_unseen(scores: Floats, constants: Mapping[str, Any], prices: Prices) -> Floats:
    """Return the scores, NaN where the bars were learned from or chose the weights. Raises
    InputError.

    Bars of the validation decide about the best weights and, by early stopping, the last ones.
    """
    is_known = "validated_until" in constants
    if not is_known:
        log.warning(
            "The model is of a version that did not note the bars it was validated on; they are "
            "traded, although they selected it. Train it again to leave them out."
        )
    until = constants["validated_until" if is_known else "trained_until"]
    is_unseen = prices.times >= until
    if not is_unseen.any():
        learned = "trained and validated" if is_known else "trained"
        problem = (
            f"got 'unseen', but the model was {learned} on all bars before {iso(until)}, and "
            "there are no later bars; allowed: all, or a model of a training with an earlier "
            "validate_until or a test_fraction"
        )
        raise InputError({"parameters.bars": problem})
    return np.where(is_unseen, scores, np.nan)


def _require_same_interval(constants: Mapping[str, Any], prices: Prices) -> None:
    learned = constants["bar_seconds"]
    here = float(np.median(np.diff(prices.times))) / 1e6 if len(prices) > 1 else learned
    if not learned / SAME_INTERVAL <= here <= learned * SAME_INTERVAL:
        raise InputError(
            {"resample": f"the bars are {here:g} s apart, those of the model {learned:g} s"}
        )


def _refused(problem: str) -> InputError:
    return InputError({"parameters.operation": problem})
