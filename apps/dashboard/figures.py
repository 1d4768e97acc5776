"""What an operation came to so far, in figures: its best value, its time, its attempts."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

from django.db.models import Max, Min

from apps.operations.lifecycle import Reason
from apps.operations.models import Attempt, MetricPoint, Operation

OUTCOME_COLOURS = {
    "running": "blue",
    "completed": "green",
    "cancelled": "orange",
    "failed": "red",
    "preempted": "azure",
    "lost": "red",
}


def of(operation: Operation, attempts: Sequence[Attempt]) -> dict[str, Any]:
    """Return the figures of an operation."""
    monitor = operation.config.get("monitor", "")
    spent, running_since = _time_spent(attempts)
    return {
        "monitor": monitor,
        "best": _best(operation, monitor),
        "newest_loss": _newest_loss(operation.metrics),
        "spent": spent,
        "spent_from": running_since - timedelta(seconds=spent) if running_since else None,
        "num_resumes": max(0, len(attempts) - 1),
        "steps_again": _steps_again(attempts),
    }


def lines(attempts: Sequence[Attempt]) -> list[dict[str, Any]]:
    """Return a line for each attempt."""
    return [
        {
            "row": attempt,
            "colour": OUTCOME_COLOURS[attempt.outcome],
            "ended": Reason(attempt.reason).label or attempt.outcome,
            "seconds": _seconds(attempt),
            "first_step": _first_step_seconds(attempt),
        }
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


def _best(operation: Operation, monitor: str) -> Mapping[str, Any] | None:
    points = MetricPoint.objects.filter(
        operation_id=operation.pk, name=monitor, retired_by=None, value__isnull=False
    )
    extreme = Max("value") if operation.config.get("mode") == "max" else Min("value")
    value = points.aggregate(best=extreme)["best"]
    if value is None:
        return None
    return {"value": value, "step": points.filter(value=value).aggregate(at=Min("step"))["at"]}


def _newest_loss(metrics: Mapping[str, Any]) -> tuple[str, Any] | None:
    names = ["train_loss", *(name for name in metrics if "loss" in name), *metrics]
    return next(((name, metrics[name]) for name in names if name in metrics), None)


def _time_spent(attempts: Sequence[Attempt]) -> tuple[float, Any]:
    """Return the seconds of all ended attempts, and since when one runs (or None)."""
    ended = sum((a.ended_at - a.started_at).total_seconds() for a in attempts if a.ended_at)
    running = (a.started_at for a in attempts if a.ended_at is None)
    return ended, next(running, None)


def _steps_again(attempts: Sequence[Attempt]) -> int:
    """Return how many steps were run more than once, because they were not saved."""
    oldest_first = sorted(attempts, key=lambda attempt: attempt.number)
    pairs = pairwise(oldest_first)
    return sum(max(0, a.to_step - b.from_step) for a, b in pairs if b.from_step is not None)
