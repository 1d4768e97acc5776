"""The operations of a study beside each other: a table, a heat map, and what its folds chose."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from django.db.models import Count, F, QuerySet, Sum
from django.db.models.fields.json import KeyTransform

from apps.operations.comparisons.differences import distinct
from apps.operations.comparisons.values import number
from apps.operations.lifecycle import ACTIVE, State
from apps.operations.models import Operation, Study
from apps.operations.studies import asking
from apps.operations.studies.designs import FoldJson
from apps.operations.studies.rows import ChosenFold, StudyRow, Trial
from trainops import progress
from trainops.kind import KINDS, Objective

LINE_FIELDS = (
    "id", "name", "state", "reason", "stop_requested", "step", "total_steps", "study_values",
    "fold", "is_test",
)  # fmt: skip


STUDY_FIELDS = (
    "id", "name", "kind", "recipe", "project", "metric", "mode", "num_planned", "num_trials",
    "created_at", "stopped_at",
)  # fmt: skip
STEPS: Final[tuple[Literal["step"], Literal["total_steps"]]] = ("step", "total_steps")


@dataclass(frozen=True, slots=True)
class StudyProgress:
    """How far the operations of a study are."""

    counts: Mapping[str, int]  # by state; only those that occur
    percent: float
    has_more: bool = False  # further operations are submitted without a request

    @property
    def colour(self) -> str:
        return "green" if self.counts.keys() == {State.COMPLETED} and not self.has_more else "blue"

    @property
    def is_active(self) -> bool:
        return self.has_more or any(state in ACTIVE for state in self.counts)


def rows_of(studies: QuerySet[Study]) -> QuerySet[Study, StudyRow]:
    """Return the values that lists of studies show."""
    rows: QuerySet[Study, Any] = studies.values(*STUDY_FIELDS, owner_name=F("owner__username"))
    return rows


def progress_by_study(rows: Iterable[StudyRow]) -> dict[str, StudyProgress]:
    """Return how far each study of `rows_of` is, by id; one query."""
    planned = {row["id"]: row["num_planned"] for row in rows}
    found: dict[str, list[tuple[str, int, int, int]]] = {study_id: [] for study_id in planned}
    states = Operation.objects.filter(study_id__in=planned).order_by().values("study_id", "state")
    for row in states.annotate(number=Count("pk"), step=Sum("step"), total=Sum("total_steps")):
        found[row["study_id"]].append((row["state"], row["number"], row["step"], row["total"]))
    return {study_id: _progress(planned[study_id], parts) for study_id, parts in found.items()}


def progress_of(study: Study, found: Sequence[Trial]) -> StudyProgress:
    """Return how far a study is by its `lines`: what is shown together is of one moment.

    Read on its own it could be later than they are: a page that stops asking once nothing is
    active would keep lines that still lack the last result.
    """
    parts = []
    for state in dict.fromkeys(line["state"] for line in found):
        mine = [line for line in found if line["state"] == state]
        step, total = (sum(line[name] for line in mine) for name in STEPS)
        parts.append((state, len(mine), step, total))
    return replace(
        _progress(study.num_planned, parts),
        has_more=asking.has_more(study) or _has_ready_fold(study, found),
    )


def _has_ready_fold(study: Study, found: Sequence[Trial]) -> bool:
    """Whether `advancing.advance` is about to test what was chosen in a fold."""
    tried = {line["fold"] for line in found if line["is_test"]}
    judged = {line["fold"] for line in found if line["value"] is not None}
    untried = {fold["number"] for fold in _folds(study)} - tried
    return study.stopped_at is None and bool(untried & judged)


def _progress(num_planned: int, parts: Sequence[tuple[str, int, int, int]]) -> StudyProgress:
    """Return it for each state's number of operations, their steps, and their steps in all."""
    share = sum(
        number * (1.0 if state == State.COMPLETED else min(1.0, step / (total or 1)))
        for state, number, step, total in parts
    )
    counts = {state: number for state, number, *_ in parts}
    return StudyProgress(counts, round(100 * share / max(1, num_planned), 3))


def lines(study: Study) -> list[Trial]:
    """Return a line for each operation: by fold, and there the best first, the unjudged last."""
    further = [metric for metric, _ in asking.objectives(study)[1:]]
    shown = dict.fromkeys([*further, *KINDS[study.kind].columns])
    figures = [name for name in shown if name != study.metric]
    names = (study.metric, *figures)
    rows: QuerySet[Any] = study.operations.order_by("pk").values(
        *LINE_FIELDS, **{f"figure_{i}": _at(name) for i, name in enumerate(names)}
    )
    return sorted((_line(row, names) for row in rows), key=lambda each: _place(study, each))


def _at(metric: str) -> KeyTransform:
    """Return what the database has at a dotted path of a result; see `asking.value_of`."""
    first, *names = metric.split(".")
    found = KeyTransform(first, "result")
    for name in names:
        found = KeyTransform(name, found)
    return found


def _line(row: Mapping[str, Any], names: Sequence[str]) -> Trial:
    numbers = [number(row[f"figure_{i}"]) for i in range(len(names))]
    return {
        "operation_id": row["id"],
        "status": row["state"],
        "id": row["id"],
        "name": row["name"],
        "state": row["state"],
        "reason": row["reason"],
        "stop_requested": row["stop_requested"],
        "step": row["step"],
        "total_steps": row["total_steps"],
        "study_values": row["study_values"],
        "fold": row["fold"],
        "is_test": row["is_test"],
        "percent": progress.percent(row["step"], row["total_steps"]),
        "value": numbers[0] if row["state"] == State.COMPLETED else None,
        "figures": dict(zip(names[1:], numbers[1:], strict=True)),
    }


def _place(study: Study, line: Trial) -> tuple[int, bool, int, float, str]:
    value, sign = line["value"], 1 if study.mode == "min" else -1
    judged = (1, 0.0) if value is None else (0, sign * value)
    return line["fold"], line["is_test"], *judged, line["id"]


def metric_name(study: Study) -> str:
    """Return the name of the study's metric; of a best value, that of the monitored metric."""
    if study.metric != Objective().metric:
        return study.metric
    fields = KINDS[study.kind].json_schema()["properties"]
    default = fields.get("monitor", {}).get("default", study.metric)
    return str(study.config.get("monitor", default))


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are known; None without any."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def best_line(found: Sequence[Trial]) -> Trial | None:
    """Return the best of a study's lines; of a walk-forward, where folds differ, there is none."""
    judged = [line for line in found if line["value"] is not None]
    return judged[0] if judged and not any(line["fold"] for line in found) else None


def front(study: Study, found: Sequence[Trial]) -> list[Trial]:
    """Return the Pareto front; empty with a single objective.

    No other line is at least as good in every objective and better in one.
    """
    objectives = asking.objectives(study)
    if len(objectives) < 2:
        return []
    judged = [(line, costs) for line in found if (costs := _costs(line, objectives))]
    return [
        line for line, costs in judged if not any(_dominates(other, costs) for _, other in judged)
    ]


def _costs(line: Trial, objectives: Sequence[tuple[str, str]]) -> list[float] | None:
    """Return the values of the objectives, the lower the better; None where one is missing."""
    by_metric = {objectives[0][0]: line["value"]}
    values = [(line["figures"] | by_metric)[metric] for metric, _ in objectives]
    signs = [1 if mode == "min" else -1 for _, mode in objectives]
    known = [sign * value for sign, value in zip(signs, values, strict=True) if value is not None]
    return known if line["value"] is not None and len(known) == len(values) else None


def _dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def paths_of(found: Sequence[Trial]) -> list[str]:
    """Return the paths in which the lines differ, those with the most values first."""
    values = distinct(line["study_values"] for line in found)
    return sorted(values, key=lambda path: -len(values[path]))


@dataclass(frozen=True, slots=True)
class Heat:
    """The best value for each pair of what two paths hold; None where none completed."""

    x: str
    y: str
    columns: Sequence[object]
    rows: Sequence[tuple[object, Sequence[float | None]]]

    @property
    def ranked(self) -> list[float]:
        """The distinct values, the lowest first."""
        return sorted({value for _, cells in self.rows for value in cells if value is not None})


def heat(study: Study, found: Sequence[Trial], x: str = "", y: str = "") -> Heat | None:
    """Return the map over two paths, by default those with the most values; None of fewer."""
    paths = paths_of(found)
    chosen = [path for path in (x, y) if path in paths]
    chosen += [path for path in paths if path not in chosen]
    if len(paths) < 2:
        return None
    x, y = chosen[:2]
    better = min if study.mode == "min" else max
    cells: dict[tuple[str, str], float] = {}
    for line in found:
        if line["value"] is not None:
            place = repr(line["study_values"].get(x)), repr(line["study_values"].get(y))
            cells[place] = better(cells.get(place, line["value"]), line["value"])
    columns, rows = _distinct(found, x), _distinct(found, y)
    return Heat(
        x, y, columns,
        [(row, [cells.get((repr(column), repr(row))) for column in columns]) for row in rows],
    )  # fmt: skip


def _distinct(found: Sequence[Trial], path: str) -> Sequence[object]:
    values = {
        repr(line["study_values"].get(path)): line["study_values"].get(path) for line in found
    }
    numbers = [each for each in values.values() if isinstance(each, int | float)]
    return sorted(numbers) if len(numbers) == len(values) else sorted(values.values(), key=str)


def _folds(study: Study) -> list[FoldJson]:
    folds: list[FoldJson] = study.folds
    return folds


def chosen(study: Study, found: Sequence[Trial]) -> list[ChosenFold]:
    """Return for each fold of a walk-forward what was chosen, and how it did before and after."""
    summary: list[ChosenFold] = []
    for fold in _folds(study):
        mine = [line for line in found if line["fold"] == fold["number"]]
        before = next((line for line in mine if not line["is_test"]), None)
        test = next((line for line in mine if line["is_test"]), None)
        is_decided = test is not None
        summary.append(
            {
                **fold,
                "values": test["study_values"] if test else None,
                "in_sample": before["value"] if before and is_decided else None,
                "out_of_sample": test["value"] if test else None,
                "operation_id": test["id"] if test else None,
            }
        )
    return summary
