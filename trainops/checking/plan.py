"""Where a check stops a run: chosen from the safe points of the undisturbed one."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainops.checking.messages import StopPoint

EVALUATION = "inside an evaluation"  # which not every recipe has


@dataclass(frozen=True, slots=True)
class Case:
    """One case of the contract: stop at each of these points in turn, then run to the end."""

    name: str
    stops: tuple[StopPoint, ...]


@dataclass(frozen=True, slots=True)
class CheckPlan:
    """The cases, and what the undisturbed run did not reach."""

    end: StopPoint
    cases: tuple[Case, ...]
    not_reached: tuple[str, ...]


def plan(points: Sequence[StopPoint]) -> CheckPlan:
    """Return the cases for a run with these safe points.

    Raises ValueError where there is no safe point between the first and the last.
    """
    steps = [each for each in points if each.step > 0 and not each.is_evaluating]
    inner = [each for each in steps if each.step < steps[-1].step]
    if not inner:
        raise ValueError("the run has a single step, so it cannot be stopped between two")
    end = steps[-1]
    places = _places(points, inner)
    cases = [Case(name, tuple(found)) for name, found in places.items() if found]
    cases.sort(key=lambda each: each.stops[0].step)
    twice = (inner[min(1, len(inner) - 1)], inner[len(inner) // 2])
    if twice[0].step < twice[1].step:
        cases.append(Case("twice in a row", twice))
    missing = [name for name, found in places.items() if not found and name != EVALUATION]
    return CheckPlan(end, tuple(_merged(cases)), tuple(missing))


def _places(
    points: Sequence[StopPoint], inner: Sequence[StopPoint]
) -> dict[str, Sequence[StopPoint]]:
    """Return one point of each kind of place, or none where the run does not reach any."""
    before = [points[0], *inner]
    ends = [one for one, last in zip(inner, before, strict=False)
            if one.milestones > last.milestones]  # fmt: skip
    evaluating = [each for each in points if each.is_evaluating]
    return {
        "the first step": inner[:1],
        "the second step": inner[1:2],
        "a middle step": inner[len(inner) // 2 :][:1],
        "inside an epoch": _inside(inner, ends),
        "the end of an epoch": ends[:1],
        EVALUATION: evaluating[len(evaluating) // 2 :][:1],
        "the last step": inner[-1:],
    }


def _inside(inner: Sequence[StopPoint], ends: Sequence[StopPoint]) -> Sequence[StopPoint]:
    """Return a point between two ends of epochs: of the second epoch where it is reached."""
    after = ends[0].step if ends else 0
    until = ends[1].step if len(ends) > 1 else inner[-1].step + 1
    between = [each for each in inner if after < each.step < until]
    return between[len(between) // 2 :][:1]


def _merged(cases: Sequence[Case]) -> list[Case]:
    """Return each place once, with all its names."""
    names: dict[tuple[StopPoint, ...], list[str]] = {}
    for case in cases:
        names.setdefault(case.stops, []).append(case.name)
    return [Case(", ".join(each), stops) for stops, each in names.items()]
