"""Conditions of alerts: pure functions that follow the points of a metric one by one.

Each has a summary of the points so far, which is small and JSON-safe, so that a long operation is
read once and never again.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Summary = dict[str, Any]
STEPS_PER_SECOND = "system/steps_per_second"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a rule says about its alert."""

    metric: str
    mode: str  # min or max
    points: int


@dataclass(frozen=True, slots=True)
class AlertPoint:
    name: str
    step: int
    value: float  # also NaN and infinite


@dataclass(frozen=True, slots=True)
class AlertCondition:
    """follow returns the next summary; note says why the alert is raised, and is empty if not."""

    follow: Callable[[Settings, Summary, AlertPoint], Summary]
    note: Callable[[Settings, Summary], str]
    of_one_attempt: bool = False  # whether points of earlier attempts do not count


def _follow_plateau(settings: Settings, summary: Summary, point: AlertPoint) -> Summary:
    if point.name != settings.metric:
        return summary
    best = summary.get("best")
    if math.isfinite(point.value) and (best is None or _is_better(settings, point.value, best)):
        return {"best": point.value, "step": point.step, "since": 0}
    return {**summary, "since": summary.get("since", 0) + 1}


def _is_better(settings: Settings, value: float, best: float) -> bool:
    return value < best if settings.mode == "min" else value > best


def _plateau(settings: Settings, summary: Summary) -> str:
    if summary.get("since", 0) < settings.points:
        return ""
    if "best" not in summary:
        return f"{settings.metric} had no finite value in {summary['since']} points"
    best = f"{summary['best']:.6g} at step {summary['step']}"
    return f"{settings.metric} is not better for {summary['since']} points; best: {best}"


def _follow_not_finite(settings: Settings, summary: Summary, point: AlertPoint) -> Summary:
    if settings.metric not in ("", point.name):
        return summary
    if math.isfinite(point.value):
        return {name: step for name, step in summary.items() if name != point.name}
    return {point.name: point.step, **summary}


def _not_finite(settings: Settings, summary: Summary) -> str:
    found = [f"{name} since step {step}" for name, step in sorted(summary.items())[:5]]
    return f"not finite: {', '.join(found)}" if found else ""


def _follow_throughput(settings: Settings, summary: Summary, point: AlertPoint) -> Summary:
    is_other = point.name != (settings.metric or STEPS_PER_SECOND)
    if is_other or not math.isfinite(point.value):
        return summary
    recent = [*summary.get("recent", []), point.value][-settings.points :]
    if len(recent) < settings.points:
        return {"recent": recent}
    return {"recent": recent, "highest": max(summary.get("highest", 0.0), _mean(recent))}


def _throughput(settings: Settings, summary: Summary) -> str:
    highest = summary.get("highest", 0.0)
    mean = _mean(summary["recent"]) if highest else 0.0
    if mean * 2 >= highest:
        return ""
    name = settings.metric or STEPS_PER_SECOND
    return f"{name} is {mean:.4g}, less than half of {highest:.4g} (means of {settings.points})"


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


CONDITIONS = {
    "plateau": AlertCondition(_follow_plateau, _plateau),
    "not_finite": AlertCondition(_follow_not_finite, _not_finite),
    "throughput_halved": AlertCondition(_follow_throughput, _throughput, of_one_attempt=True),
}
