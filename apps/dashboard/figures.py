"""What an operation came to so far, in figures: its best value, its time, its attempts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TypedDict

from apps.operations.lifecycle import reason_label
from apps.operations.models import Attempt, Operation
from apps.operations.points import metric_queries
from apps.operations.points.metric_queries import Curve
from trainops.runtime import monitors

OUTCOME_COLOURS = {
    "running": "blue",
    "completed": "green",
    "cancelled": "orange",
    "failed": "red",
    "preempted": "azure",
    "lost": "red",
}
UNKNOWN = "secondary"  # an outcome that a newer version wrote, before a rollback


class BestPoint(TypedDict):
    """The best value of a monitored metric, and its step; both 0 where none was measured."""

    metric: str
    is_known: bool
    value: float
    step: int


class Figures(TypedDict):
    """The figures of an operation, as the context of a template."""

    bests: list[BestPoint]  # by `monitor` and further monitored metrics
    newest: tuple[str, object] | None  # a loss if there is one, else another metric
    spent: float  # seconds of ended attempts
    spent_from: datetime | None  # if an attempt runs: its start, less the seconds before
    waited: float | None  # seconds from the submission to the first start
    steps_per_second: float | None  # now if an attempt runs, else the mean of all
    num_resumes: int
    steps_again: int


@dataclass(frozen=True, slots=True)
class AttemptLine:
    """An attempt in the table of attempts; times in seconds."""

    row: Attempt
    colour: str
    ended: str
    seconds: float | None
    first_step: float | None


def of(operation: Operation, attempts: Sequence[Attempt], best_points: list[BestPoint]) -> Figures:
    """Return the figures of an operation; its best points are those of `bests`."""
    spent, running_since = _time_spent(attempts)
    again = steps_again(attempts)
    began = min((attempt.started_at for attempt in attempts), default=None)
    done = operation.step - _first_step(attempts) + again
    mean = done / spent if spent else None
    return {
        "bests": best_points,
        "newest": _newest(operation.metrics),
        "spent": spent,
        "spent_from": running_since - timedelta(seconds=spent) if running_since else None,
        "waited": (began - operation.created_at).total_seconds() if began else None,
        "steps_per_second": operation.steps_per_second if running_since else mean,
        "num_resumes": max(0, len(attempts) - 1),
        "steps_again": again,
    }


def lines(attempts: Sequence[Attempt]) -> list[AttemptLine]:
    """Return a line for each attempt."""
    return [
        AttemptLine(
            row=attempt,
            colour=OUTCOME_COLOURS.get(attempt.outcome, UNKNOWN),
            ended=reason_label(attempt.reason) or attempt.outcome,
            seconds=_seconds(attempt),
            first_step=_first_step_seconds(attempt),
        )
        for attempt in attempts
    ]


def _seconds(attempt: Attempt) -> float | None:
    if attempt.ended_at is None:
        return None
    return (attempt.ended_at - attempt.started_at).total_seconds()


def _first_step_seconds(attempt: Attempt) -> float | None:
    """Return the seconds from the claim to its first step, once it has done one."""
    if "first_step" not in attempt.timings:
        return None
    return float(attempt.timings["child"] + attempt.timings["first_step"])


def bests(operation: Operation) -> list[BestPoint]:
    """Return the extremes of the points that stand, the first ones; thinned curves have them."""
    modes = _modes(operation)
    found = metric_queries.curves(operation.pk, names=[*modes]) if modes else None
    return _extremes(modes, found.series if found else ())


def better(
    operation: Operation, known: Iterable[BestPoint], further: Iterable[Curve]
) -> list[BestPoint]:
    """Return `bests` from those that were known before further points were measured."""
    return _extremes(_modes(operation), further, known)


def _modes(operation: Operation) -> dict[str, str]:
    """Return whether each monitored metric is to be low (min) or high (max)."""
    monitor, modes = operation.config.get("monitor"), monitors.further(operation.config)
    return {monitor: operation.config.get("mode", "min"), **modes} if monitor else dict(modes)


def _extremes(
    modes: Mapping[str, str], curves: Iterable[Curve], known: Iterable[BestPoint] = ()
) -> list[BestPoint]:
    signs = {name: -1 if mode == "max" else 1 for name, mode in modes.items()}
    values: dict[str, list[tuple[float, int]]] = {name: [] for name in modes}
    for best in known:
        if best["is_known"] and (name := best["metric"]) in values:
            values[name].append((signs[name] * best["value"], best["step"]))
    for curve in curves:
        if curve["retired_by"] is None and (name := curve["name"]) in values:
            values[name] += [
                (signs[name] * value, step)
                for step, value in zip(curve["steps"], curve["values"], strict=True)
                if isinstance(value, float)
            ]
    return [_first(name, mode, values[name]) for name, mode in modes.items()]


def _first(metric: str, mode: str, values: Sequence[tuple[float, int]]) -> BestPoint:
    if not values:
        return {"metric": metric, "is_known": False, "value": 0.0, "step": 0}
    value, step = min(values)
    best = -value if mode == "max" else value
    return {"metric": metric, "is_known": True, "value": best, "step": step}


def _newest(metrics: Mapping[str, object]) -> tuple[str, object] | None:
    names = ["train_loss", *(name for name in metrics if "loss" in name), *metrics]
    return next(((name, metrics[name]) for name in names if name in metrics), None)


def _time_spent(attempts: Sequence[Attempt]) -> tuple[float, datetime | None]:
    """Return the seconds of all ended attempts, and since when one runs (or None)."""
    ended = sum((a.ended_at - a.started_at).total_seconds() for a in attempts if a.ended_at)
    running = (a.started_at for a in attempts if a.ended_at is None)
    return ended, next(running, None)


def _first_step(attempts: Sequence[Attempt]) -> int:
    """Return the step at which the first attempt began: that of its checkpoint, for a fork."""
    begun = [attempt for attempt in attempts if attempt.from_step is not None]
    first = min(begun, key=lambda attempt: attempt.number, default=None)
    return (first.from_step or 0) if first else 0


def steps_again(attempts: Sequence[Attempt]) -> int:
    """Return how many steps were run more than once, because they were not saved."""
    oldest_first = sorted(attempts, key=lambda attempt: attempt.number)
    pairs = pairwise(oldest_first)
    return sum(max(0, a.to_step - b.from_step) for a, b in pairs if b.from_step is not None)
