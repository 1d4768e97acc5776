"""The trials of a study as they are drawn: tried values, objectives and metrics."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from apps.operations.comparisons import dimensions, importance
from apps.operations.comparisons.curves import AXIS
from apps.operations.comparisons.dimensions import Dimension
from apps.operations.comparisons.importance import Importance
from apps.operations.comparisons.values import mode_of, number
from apps.operations.lifecycle import State
from apps.operations.models import Study
from apps.operations.search.directions import Mode, stem
from apps.operations.studies import asking, comparison
from apps.operations.studies.rows import Trial
from trainops.media.names import is_metric

MAX_METRICS = 40


class DrawnOperation(TypedDict):
    """An operation as charts name it."""

    operation_id: str
    name: str
    status: str


class StudyDimensions(TypedDict):
    """What StudyDimensionsSerializer describes. target: the key of the objective."""

    target: str
    is_active: bool
    operations: list[DrawnOperation]
    dimensions: list[Dimension]


@dataclass(frozen=True, slots=True)
class _Drawn:
    """The lines that are drawn, their dimensions, and the key of the objective."""

    lines: Sequence[Trial]
    dimensions: list[Dimension]
    target: str


def of(study: Study) -> StudyDimensions:
    """Return the dimensions of the operations; of a walk-forward, of those in sample."""
    lines = comparison.lines(study)
    drawn = _drawn(study, lines)
    return {
        "target": drawn.target,
        "is_active": comparison.progress_of(study, lines).is_active,
        "operations": [
            {"operation_id": each["id"], "name": each["name"], "status": each["state"]}
            for each in drawn.lines
        ],
        "dimensions": drawn.dimensions,
    }


def importance_of(study: Study, target: str = "") -> Importance:
    """Return the importance of the tried values for the objective, or for another value.

    Raises NotComparable, ImportanceBusy, ImportanceFailed.
    """
    drawn = _drawn(study, comparison.lines(study))
    completed = [each["state"] == State.COMPLETED for each in drawn.lines]
    return importance.of(drawn.dimensions, completed, target or drawn.target)


def _drawn(study: Study, found: Sequence[Trial]) -> _Drawn:
    lines = [each for each in found if not each["is_test"]]
    fields = dimensions.of_leaves([_tried(each) for each in lines])
    objective = dimensions.value(
        comparison.metric_name(study),
        "result",
        _mode(study.mode),
        (each["value"] for each in lines),
    )
    values = [objective, *_figures(study, lines), *_measured(study, lines)]
    known = dimensions.with_values(values)
    target = objective["key"] if objective in known else dimensions.default_target(known)
    return _Drawn(lines, [*fields, *known], target)


def _tried(line: Trial) -> Mapping[str, object]:
    """Return the values of a trial; of a walk-forward with its fold."""
    return {**line["study_values"], "fold": line["fold"]} if line["fold"] else line["study_values"]


def _figures(study: Study, lines: Sequence[Trial]) -> list[Dimension]:
    modes = dict(asking.objectives(study)[1:])
    names = list(lines[0]["figures"]) if lines else []
    return [
        dimensions.value(
            name, "result", _mode(modes.get(name)), (each["figures"][name] for each in lines)
        )
        for name in names
    ]


def _measured(study: Study, lines: Sequence[Trial]) -> list[Dimension]:
    """Return the latest and the best values of metrics, those of most operations first."""
    rows = study.operations.order_by().values_list("pk", "metrics", "extremes")
    metrics: dict[str, Any] = {pk: (latest, extremes or {}) for pk, latest, extremes in rows}
    counts = Counter(name for latest, _ in metrics.values() for name in latest)
    names = sorted(counts, key=lambda name: (-counts[name], name))
    shown = [name for name in names if name != AXIS and is_metric(name)]
    monitored = {stem(comparison.metric_name(study)): {study.mode}}
    found = []
    for name in shown[:MAX_METRICS]:
        mode = mode_of(name, monitored)
        mine = [metrics.get(each["id"], ({}, {})) for each in lines]
        latest = (number(each.get(name)) for each, _ in mine)
        found.append(dimensions.value(name, "final", mode, latest))
        if mode is not None:
            place = 0 if mode == "min" else 1
            best = (each[name][place] if name in each else None for _, each in mine)
            found.append(dimensions.value(name, "best", mode, best))
    return found


def _mode(text: str | None) -> Mode | None:
    if text == "min":
        return "min"
    return "max" if text == "max" else None
