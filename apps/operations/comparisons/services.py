"""Compare operations: what differs between them, their values, and their curves."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from django.db.models import F, QuerySet

from apps.operations.comparisons import (
    curves,
    dimensions,
    importance,
    records,
    selection,
    values,
)
from apps.operations.comparisons.curves import MetricCurves
from apps.operations.comparisons.differences import Difference, differing
from apps.operations.comparisons.dimensions import Dimension
from apps.operations.comparisons.importance import Importance
from apps.operations.comparisons.records import PARTS, Part, Recorded
from apps.operations.comparisons.selection import Selected
from apps.operations.comparisons.values import ValueRow
from apps.operations.lifecycle import State
from apps.operations.models import Operation


class ComparedOperation(TypedDict):
    """One of the operations. problem: why its code and environment are not known, or empty."""

    operation_id: str
    name: str
    kind: str
    recipe: str
    status: str
    stop_requested: str
    unit: str
    step: int
    total_steps: int
    percent: float
    problem: str


class PartDifferences(TypedDict):
    """What differs in one part of the records, among the operations whose part is known."""

    part: Part
    rows: list[Difference]
    num_equal: int  # paths with one value in all of them


class ComparedOperations(TypedDict):
    """The operations in the order of the request, and which of them is the baseline."""

    baseline: str
    operations: list[ComparedOperation]


class Comparison(ComparedOperations):
    """What ComparisonSerializer describes."""

    differences: list[PartDifferences]
    values: list[ValueRow]
    curves: list[MetricCurves]
    left_out: list[str]
    is_thinned: bool
    dimensions: list[Dimension]  # what the operations can be drawn over
    target: str  # key of the value that judges by default


def described(selected: Selected) -> ComparedOperations:
    """Return the operations of a comparison, which cost little compared with what differs."""
    found = selected.operations
    return {"baseline": selected.baseline, "operations": _all_described(found, records.of(found))}


def compare(ids: Sequence[str], baseline: str = "") -> Comparison:
    """Compare 2 to 12 operations. Raises NotComparable, OperationNotFound."""
    return compare_selected(selection.chosen(ids, baseline))


def compare_selected(selected: Selected) -> Comparison:
    """Compare operations.

    The number of queries is fixed, but for one more for each operation with long curves.
    """
    fetched, baseline = selected.operations, selected.baseline
    ids = [each.pk for each in fetched]
    recorded = records.of(fetched)
    found = curves.of(ids)
    differences = [_part(name, recorded) for name in PARTS]
    rows = [
        *values.figures(fetched, _results(fetched), baseline),
        *values.of_metrics(fetched, found.metrics, baseline),
    ]
    drawn = dimensions.of_comparison(ids, differences[0]["rows"], rows)
    return {
        "baseline": baseline,
        "operations": _all_described(fetched, recorded),
        "differences": differences,
        "values": rows,
        "curves": found.metrics,
        "left_out": found.left_out,
        "is_thinned": found.is_thinned,
        "dimensions": drawn,
        "target": dimensions.default_target(drawn, values.monitored(fetched)),
    }


def importance_among(ids: Sequence[str], target: str = "") -> Importance:
    """Return the importance of the config fields that differ, for `target` or the default value.

    Raises NotComparable, OperationNotFound, ImportanceBusy, ImportanceFailed.
    """
    comparison = compare(ids)
    completed = [each["status"] == State.COMPLETED for each in comparison["operations"]]
    return importance.of(comparison["dimensions"], completed, target or comparison["target"])


def _all_described(
    found: Sequence[Operation], recorded: Mapping[str, Recorded]
) -> list[ComparedOperation]:
    return [_described(each, recorded[each.pk].problem) for each in found]


def _described(operation: Operation, problem: str) -> ComparedOperation:
    return {
        "operation_id": operation.pk,
        "name": operation.name,
        "kind": operation.kind,
        "recipe": operation.recipe,
        "status": operation.state,
        "stop_requested": operation.stop_requested,
        "unit": operation.unit,
        "step": operation.step,
        "total_steps": operation.total_steps,
        "percent": operation.percent,
        "problem": problem,
    }


def _part(name: Part, recorded: Mapping[str, Recorded]) -> PartDifferences:
    parts = {each: mine.part(name) for each, mine in recorded.items()}
    known = {each: leaves for each, leaves in parts.items() if leaves is not None}
    found = differing(known)
    return {"part": name, "rows": found.rows, "num_equal": found.num_equal}


def _results(found: Sequence[Operation]) -> dict[str, dict[str, object]]:
    """Return the compared figures of each result by path; the results themselves may be long."""
    paths = values.figure_paths(found)
    if not paths:
        return {}
    columns = {
        f"figure_{i}": F(f"result__{path.replace('.', '__')}") for i, path in enumerate(paths)
    }
    ids = [each.pk for each in found]
    rows: QuerySet[Any] = Operation.objects.filter(pk__in=ids).values("pk", **columns)
    return {row["pk"]: {path: row[f"figure_{i}"] for i, path in enumerate(paths)} for row in rows}
