"""Final and best values of metrics, figures of results, and their differences to a baseline."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Final, Literal, TypeAlias, TypedDict

from apps.operations.comparisons.curves import ComparedCurve, MetricCurves
from apps.operations.models import Operation
from apps.operations.search.directions import Mode, by_name, stem
from trainops.kind import KINDS, Objective
from trainops.runtime import monitors

What: TypeAlias = Literal["result", "final", "best", "lowest", "highest"]
OF_MONITORED: Final = Objective().metric  # repeats the best value of the monitored metric


class Cell(TypedDict):
    """The value of one operation. delta: the difference to the baseline, if both are finite."""

    value: float | str  # text where not finite
    step: int | None  # None: of a result
    delta: float | None


class ValueRow(TypedDict):
    """One value of each operation that has it. mode: None where no direction is known."""

    name: str
    what: What
    mode: Mode | None
    values: dict[str, Cell]  # by operation id
    best: list[str]  # operations with the best value, where they do not all have it


def number(value: object) -> float | None:
    """Return a finite or infinite number of a result; None for anything else."""
    if not isinstance(value, int | float) or isinstance(value, bool) or value != value:
        return None
    return value


def figures(
    operations: Sequence[Operation], results: Mapping[str, Mapping[str, object]], baseline: str
) -> list[ValueRow]:
    """Return a row for each figure of the results; `results`: id → path → value."""
    modes: dict[str, set[str]] = defaultdict(set)
    for each in operations:
        kind = KINDS[each.kind]
        modes[kind.objective.metric].add(kind.mode(each.config))
    rows = []
    for path in figure_paths(operations):
        values = {each.pk: number(results.get(each.pk, {}).get(path)) for each in operations}
        points = {each: (value, None) for each, value in values.items() if value is not None}
        if points:
            rows.append(_row(path, "result", _only(modes.get(path, set())), points, baseline))
    return rows


def figure_paths(operations: Iterable[Operation]) -> list[str]:
    """Return the paths in the results that the kinds of these operations compare."""
    paths: dict[str, None] = {}
    for name in dict.fromkeys(each.kind for each in operations):
        kind = KINDS[name]
        paths |= dict.fromkeys((kind.objective.metric, *kind.columns))
    return [path for path in paths if path != OF_MONITORED]


def of_metrics(
    operations: Sequence[Operation], metrics: Iterable[MetricCurves], baseline: str
) -> list[ValueRow]:
    """Return for each metric its final value, and its best one or, without a mode, its range.

    Thinned curves keep the extremes and the newest point, so that these values are exact.
    """
    modes = _monitored(operations)
    rows = []
    for metric in metrics:
        name, series = metric["name"], metric["series"]
        mode = mode_of(name, modes)
        finals = {each: (curve["values"][-1], curve["steps"][-1]) for each, curve in series.items()}
        known = {each: point for each, point in finals.items() if point[0] is not None}
        rows.append(_row(name, "final", mode, known, baseline))
        extremes: dict[What, Mode] = {"lowest": "min", "highest": "max"}
        if mode is not None:
            extremes = {"best": mode}
        for what, extreme in extremes.items():
            found = {each: _extreme(curve, extreme) for each, curve in series.items()}
            points = {each: point for each, point in found.items() if point is not None}
            rows.append(_row(name, what, mode, points, baseline))
    return [row for row in rows if row["values"]]


def mode_of(name: str, monitored: Mapping[str, set[str]]) -> Mode | None:
    """Return the direction of a metric; None if it is not known or not the same for all.

    It is that of the monitored metric with the same name but for the prefix train_, val_, test_ or
    evaluation_; otherwise losses are minimised and accuracies maximised.
    """
    known = stem(name)
    if known in monitored:
        return _only(monitored[known])
    return by_name(known)


def monitored(operations: Iterable[Operation]) -> set[str]:
    """Return the names of the metrics that the operations monitor."""
    return {each.config["monitor"] for each in operations if each.config.get("monitor")}


def _monitored(operations: Iterable[Operation]) -> dict[str, set[str]]:
    """Return the modes of the monitored metrics, by their names without prefix."""
    modes: dict[str, set[str]] = defaultdict(set)
    for each in operations:
        if monitor := each.config.get("monitor"):
            modes[stem(monitor)].add(each.better)
        for metric, mode in monitors.further(each.config).items():
            modes[stem(metric)].add(mode)
    return modes


def _only(modes: set[str]) -> Mode | None:
    if modes == {"min"}:
        return "min"
    return "max" if modes == {"max"} else None


_Point: TypeAlias = tuple[float | str, int | None]  # value and step


def _extreme(curve: ComparedCurve, mode: Mode) -> _Point | None:
    """Return the first lowest or highest finite point."""
    finite = [value for value in curve["values"] if isinstance(value, float)]
    if not finite:
        return None
    extreme = min(finite) if mode == "min" else max(finite)
    return extreme, curve["steps"][curve["values"].index(extreme)]


def _row(
    name: str,
    what: What,
    mode: Mode | None,
    points: Mapping[str, tuple[float | str | None, int | None]],
    baseline: str,
) -> ValueRow:
    base = points.get(baseline, (None, None))[0]
    cells: dict[str, Cell] = {}
    for each, (value, step) in points.items():
        if value is not None:
            delta = None if each == baseline else _delta(value, base)
            cells[each] = {"value": value, "step": step, "delta": delta}
    best = _best(cells, mode)
    return {"name": name, "what": what, "mode": mode, "values": cells, "best": best}


def _delta(value: float | str, base: float | str | None) -> float | None:
    """Return the difference of two finite numbers; None for anything else."""
    if isinstance(value, str) or base is None or isinstance(base, str):
        return None
    return value - base if isfinite(value) and isfinite(base) else None


def _best(cells: Mapping[str, Cell], mode: Mode | None) -> list[str]:
    values = {each: cell["value"] for each, cell in cells.items()}
    numbers = {each: value for each, value in values.items() if not isinstance(value, str)}
    if mode is None or len(set(values.values())) < 2 or not numbers:
        return []
    best = min(numbers.values()) if mode == "min" else max(numbers.values())
    return [each for each, value in numbers.items() if value == best]
