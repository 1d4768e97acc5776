"""The operations of a study beside each other: a table, a heat map, and what its folds chose."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import Count, F, QuerySet, Sum

from apps.operations.lifecycle import ACTIVE, State
from apps.operations.models import Operation, Study
from trainops.kind import KINDS

LINE_FIELDS = (
    "id", "name", "state", "stop_requested", "step", "total_steps", "study_values", "fold",
    "is_test",
)  # fmt: skip


STUDY_FIELDS = (
    "id", "name", "kind", "recipe", "metric", "mode", "num_planned", "created_at", "stopped_at",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Standing:
    """How far the operations of a study are."""

    counts: Mapping[str, int]  # by state; only those that occur
    percent: float
    has_ready_fold: bool = False  # all of its operations have ended; what was best is tried next

    @property
    def is_active(self) -> bool:
        return self.has_ready_fold or any(state in ACTIVE for state in self.counts)


def rows_of(studies: QuerySet[Study]) -> QuerySet[Any]:
    """Return the values that lists of studies show."""
    rows: QuerySet[Any] = studies.values(*STUDY_FIELDS, owner_name=F("owner__username"))
    return rows


def standings(rows: Iterable[Mapping[str, Any]]) -> dict[str, Standing]:
    """Return how far each study of `rows_of` is, by id; one query."""
    planned = {row["id"]: row["num_planned"] for row in rows}
    found: dict[str, list[tuple[str, int, int, int]]] = {study_id: [] for study_id in planned}
    rows = Operation.objects.filter(study_id__in=planned).order_by().values("study_id", "state")
    for row in rows.annotate(number=Count("pk"), step=Sum("step"), total=Sum("total_steps")):
        found[row["study_id"]].append((row["state"], row["number"], row["step"], row["total"]))
    return {study_id: _standing(planned[study_id], parts) for study_id, parts in found.items()}


def standing_of(study: Study, found: Sequence[Mapping[str, Any]]) -> Standing:
    """Return how far a study is by its `lines`: what is shown together is of one moment.

    Read on its own it could be later than they are: a page that stops asking once nothing is
    active would keep lines that still lack the last result.
    """
    parts = []
    for state in dict.fromkeys(line["state"] for line in found):
        mine = [line for line in found if line["state"] == state]
        steps = (sum(line[name] for line in mine) for name in ("step", "total_steps"))
        parts.append((state, len(mine), *steps))
    return replace(
        _standing(study.num_planned, parts), has_ready_fold=_has_ready_fold(study, found)
    )


def _has_ready_fold(study: Study, found: Sequence[Mapping[str, Any]]) -> bool:
    """Whether `studies.advance` is about to submit something."""
    tried = {line["fold"] for line in found if line["is_test"]}
    judged = {line["fold"] for line in found if line["value"] is not None}
    untried = {fold["number"] for fold in study.folds} - tried
    return study.stopped_at is None and bool(untried & judged)


def _standing(num_planned: int, parts: Sequence[tuple[str, int, int, int]]) -> Standing:
    """Return it for each state's number of operations, their steps, and their steps in all."""
    share = sum(
        number * (1.0 if state == State.COMPLETED else min(1.0, step / (total or 1)))
        for state, number, step, total in parts
    )
    counts = {state: number for state, number, *_ in parts}
    return Standing(counts, round(100 * share / max(1, num_planned), 3))


def lines(study: Study) -> list[dict[str, Any]]:
    """Return a line for each operation: by fold, and there the best first, the unjudged last."""
    figures = [name for name in KINDS[study.kind].columns if name != study.metric]
    paths = {name: f"result__{name.replace('.', '__')}" for name in (study.metric, *figures)}
    rows: QuerySet[Any] = study.operations.order_by("pk").values(
        *LINE_FIELDS, **{f"figure_{i}": F(path) for i, path in enumerate(paths.values())}
    )
    return sorted((_line(row, list(paths)) for row in rows), key=lambda each: _place(study, each))


def _line(row: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    numbers = [_number(row.pop(f"figure_{i}")) for i in range(len(names))]
    total = row["total_steps"]
    return {
        "operation_id": row["id"],
        "status": row["state"],
        **row,
        "percent": round(100.0 * row["step"] / total, 3) if total else 0.0,
        "value": numbers[0] if row["state"] == State.COMPLETED else None,
        "figures": dict(zip(names[1:], numbers[1:], strict=True)),
    }


def _place(study: Study, line: Mapping[str, Any]) -> tuple[Any, ...]:
    value, sign = line["value"], 1 if study.mode == "min" else -1
    judged = (1, 0.0) if value is None else (0, sign * value)
    return line["fold"], line["is_test"], *judged, line["id"]


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and value == value else None


def best_line(found: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the best of a study's lines; of a walk-forward, where folds differ, there is none."""
    judged = [line for line in found if line["value"] is not None]
    return judged[0] if judged and not any(line["fold"] for line in found) else None


def paths_of(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the paths in which the lines differ, those with the most values first."""
    values: dict[str, set[str]] = {}
    for line in found:
        for path, value in line["study_values"].items():
            values.setdefault(path, set()).add(repr(value))
    return sorted(values, key=lambda path: -len(values[path]))


@dataclass(frozen=True, slots=True)
class Heat:
    """The best value for each pair of what two paths hold; None where none completed."""

    x: str
    y: str
    columns: Sequence[Any]
    rows: Sequence[tuple[Any, Sequence[float | None]]]

    @property
    def bounds(self) -> tuple[float, float] | None:
        known = [value for _, cells in self.rows for value in cells if value is not None]
        return (min(known), max(known)) if known else None


def heat(study: Study, found: Sequence[Mapping[str, Any]], x: str = "", y: str = "") -> Heat | None:
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


def _distinct(found: Sequence[Mapping[str, Any]], path: str) -> list[Any]:
    values = {
        repr(line["study_values"].get(path)): line["study_values"].get(path) for line in found
    }
    numbers = all(isinstance(each, int | float) for each in values.values())
    return sorted(values.values(), key=None if numbers else str)


def chosen(study: Study, found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return for each fold of a walk-forward what was chosen, and how it did before and after."""
    summary = []
    for fold in study.folds:
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
