"""The tables of a comparison: each row with one cell for each operation, in their order."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from apps.dashboard import formatting
from apps.dashboard.compared_curves import LegendEntry
from apps.operations.comparisons.differences import Difference
from apps.operations.comparisons.records import Part
from apps.operations.comparisons.services import (
    ComparedOperation,
    ComparedOperations,
    Comparison,
)
from apps.operations.comparisons.values import ValueRow
from apps.operations.lifecycle import ACTIVE
from apps.operations.studies.dimensions import StudyDimensions
from apps.operations.studies.rows import Trial
from trainops.runtime.receipt import MATTERS

TITLES: Final[dict[Part, str]] = {
    "config": "Config",
    "code": "Code",
    "data": "Data",
    "environment": "Environment",
}
MAX_CHARS = 200  # of a value in a cell
MAX_VALUES_OF_NAME = 3  # that a trial is called by


@dataclass(frozen=True, slots=True)
class ComparedColumn:
    """An operation, and the addresses of the same page with another baseline or without it."""

    operation: ComparedOperation
    tint: int  # its colour
    is_baseline: bool
    as_baseline: str
    without: str  # empty: there must be at least two

    @property
    def short_id(self) -> str:
        return self.operation["operation_id"][-6:]


@dataclass(frozen=True, slots=True)
class DifferenceCell:
    text: str
    is_other: bool  # than that of the baseline


@dataclass(frozen=True, slots=True)
class ValueCell:
    """A value with its difference to the baseline; empty texts: there is none."""

    text: str = ""
    delta: str = ""
    colour: str = ""  # gain or loss, where the direction is known
    is_best: bool = False
    step: int | None = None


@dataclass(frozen=True, slots=True)
class PartTable:
    """What differs in one part of the records."""

    title: str
    note: str
    rows: list[tuple[str, list[DifferenceCell]]]


def columns(comparison: ComparedOperations, chosen: Sequence[str]) -> list[ComparedColumn]:
    """Return a column for each operation; their colours are those of all that were `chosen`."""
    ids = [each["operation_id"] for each in comparison["operations"]]
    baseline = comparison["baseline"]
    return [
        ComparedColumn(
            operation=each,
            tint=chosen.index(each["operation_id"]),
            is_baseline=each["operation_id"] == baseline,
            as_baseline=address(ids, each["operation_id"]),
            without=_without(ids, each["operation_id"], baseline),
        )
        for each in comparison["operations"]
    ]


def address(ids: Sequence[str], baseline: str = "") -> str:
    """Return the address of a comparison; the first operation is the baseline by default."""
    path = f"/compare/?ids={','.join(ids)}"
    return f"{path}&baseline={baseline}" if baseline and baseline != ids[0] else path


def _without(ids: Sequence[str], left_out: str, baseline: str) -> str:
    rest = [each for each in ids if each != left_out]
    return address(rest, baseline if baseline in rest else "") if len(rest) > 1 else ""


def legend(comparison: ComparedOperations, chosen: Sequence[str]) -> list[LegendEntry]:
    """Return the operations as the legend of the curves shows them, in the colours of `columns`."""
    return [
        {
            "operation_id": each["operation_id"],
            "name": each["name"],
            "note": each["operation_id"][-6:],
            "unit": each["unit"],
            "tint": chosen.index(each["operation_id"]),
        }
        for each in comparison["operations"]
    ]


def legend_of_trials(lines: Sequence[Trial], paths: Sequence[str], unit: str) -> list[LegendEntry]:
    """Return the operations of a study as the legend shows them: by the values that differ."""
    return [
        {
            "operation_id": line["id"],
            "name": _trial_name(line, paths) or line["name"],
            "note": line["id"][-6:],
            "unit": unit,
        }
        for line in lines
    ]


def _trial_name(line: Trial, paths: Sequence[str]) -> str:
    named = [each for each in paths if each in line["study_values"]]
    return ", ".join(
        f"{path.rpartition('.')[2]} {_short(line['study_values'][path])}"
        for path in named[:MAX_VALUES_OF_NAME]
    )


def _short(value: object) -> str:
    return formatting.number(value) if isinstance(value, float) else text(value)


def part_tables(comparison: Comparison) -> list[PartTable]:
    """Return what differs in each part, also those in which nothing does."""
    found = []
    for each in comparison["differences"]:
        part, differences = each["part"], each["rows"]
        rows = [(_label(part, row["path"]), _cells(comparison, row)) for row in differences]
        found.append(PartTable(TITLES[part], _note(len(differences), each["num_equal"]), rows))
    return found


def _note(num_different: int, num_equal: int) -> str:
    if not num_different and not num_equal:
        return "Nothing is recorded."
    hidden = f"{formatting.plural(num_equal, 'equal value')} not shown." if num_equal else ""
    return hidden if num_different else f"No difference; {hidden}"


def value_rows(comparison: Comparison) -> list[tuple[ValueRow, list[ValueCell]]]:
    """Return the rows of values, each with its cells."""
    ids = [each["operation_id"] for each in comparison["operations"]]
    return [(row, [_value_cell(row, each) for each in ids]) for row in comparison["values"]]


def relations(comparison: Comparison) -> StudyDimensions:
    """Return what the charts of fields and values draw, as the API returns it for a study."""
    return {
        "target": comparison["target"],
        "is_active": False,
        "operations": [
            {"operation_id": each["operation_id"], "name": each["name"], "status": each["status"]}
            for each in comparison["operations"]
        ],
        "dimensions": comparison["dimensions"],
    }


def num_active(comparison: ComparedOperations) -> int:
    """Return how many of the operations have not ended."""
    return sum(each["status"] in ACTIVE for each in comparison["operations"])


def _label(part: Part, path: str) -> str:
    return MATTERS.get(path, path) if part == "environment" else path


def _cells(comparison: Comparison, row: Difference) -> list[DifferenceCell]:
    texts = {each: text(value) for each, value in row["values"].items()}
    base = texts.get(comparison["baseline"], "")
    ids = [each["operation_id"] for each in comparison["operations"]]
    return [DifferenceCell(texts.get(each, ""), texts.get(each, "") != base) for each in ids]


def text(value: object) -> str:
    """Return a value of a record as text, cut after MAX_CHARS characters."""
    shown = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
    return shown if len(shown) <= MAX_CHARS else f"{shown[:MAX_CHARS]}…"


def _value_cell(row: ValueRow, operation_id: str) -> ValueCell:
    if operation_id not in row["values"]:
        return ValueCell()
    cell = row["values"][operation_id]
    delta, colour = cell["delta"], ""
    if delta and row["mode"]:
        colour = "gain" if (delta < 0) == (row["mode"] == "min") else "loss"
    shown = "" if delta is None else "±0" if delta == 0 else _signed(delta)
    is_best = operation_id in row["best"]
    return ValueCell(formatting.number(cell["value"]), shown, colour, is_best, cell["step"])


def _signed(delta: float) -> str:
    text = formatting.number(delta)
    return f"+{text}" if delta > 0 else text
