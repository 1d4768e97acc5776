"""The command that compares operations: what differs between them, and their values."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from trainops.cli import looks
from trainops.cli.operations import PANEL
from trainops.cli.out import OutputFormat
from trainops.cli.session import Session, command
from trainops.client.comparison_responses import ComparedOperation, ComparedValues, Comparison
from trainops.client.problems import ExitCode, Problem
from trainops.client.references import operation_id, short_ids

ALLOWED = "2 to 12 operations"
MAX_OPERATIONS = 12
MAX_CHARS = 60  # of a value


def register(app: typer.Typer) -> None:
    """Add the command `compare`."""
    command(app, "compare", panel=PANEL)(compare)


def compare(
    session: Session,
    references: Annotated[
        list[str],
        typer.Argument(
            metavar="ID ID...",
            help=f"{ALLOWED}: complete ids, or their last 4 or more letters.",
            show_default=False,
        ),
    ],
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Operation to which values are compared; by default the first."
        ),
    ] = None,
) -> None:
    """Compare operations: what differs in config, code, data and environment; metrics.

    A value has its difference to the baseline in brackets; the best of a row is marked by *.

    Example: trainops compare 3f9b3c c0ffee --baseline 3f9b3c
    """
    if not 2 <= len(references) <= MAX_OPERATIONS:
        raise Problem(f"got {len(references)} ids; allowed: {ALLOWED}", ExitCode.USAGE)
    ids = [operation_id(session.api, each) for each in references]
    chosen = operation_id(session.api, baseline) if baseline else None
    comparison: Comparison = session.api.get(
        "operations/compare", ids=",".join(ids), baseline=chosen
    )
    if session.out.ids_only:
        session.out.data(comparison["operations"])
        return
    if session.out.is_data:
        is_csv = session.out.form is OutputFormat.CSV
        session.out.data(_rows(comparison, ids) if is_csv else comparison)
        return
    names = short_ids(ids)
    _say_operations(session, comparison)
    _say_differences(session, comparison, ids, names)
    _say_values(session, comparison["values"], ids, names)
    session.out.note(f"page  {session.server.url}/compare/?ids={','.join(ids)}")


def _rows(comparison: Comparison, ids: Sequence[str]) -> list[dict[str, object]]:
    """Return a row for each difference and each value of a metric, with a column for each id."""
    rows: list[dict[str, object]] = [
        {"part": part["part"], "name": row["path"], "what": ""}
        | {each: _value(row["values"], each, max_chars=None) for each in ids}
        for part in comparison["differences"]
        for row in part["rows"]
    ]
    for row in comparison["values"]:
        named = {"part": "metric", "name": row["name"], "what": row["what"]}
        measured = {name: cell["value"] for name, cell in row["values"].items()}
        rows.append({**named, **dict.fromkeys(ids), **measured})
    return rows


def _say_operations(session: Session, comparison: Comparison) -> None:
    session.out.table(
        ["ID", "NAME", "STATE", "PROGRESS", "BASELINE"],
        (
            [
                looks.cell(each["operation_id"]),
                looks.cell(each["name"]),
                looks.state(each["status"]),
                looks.cell(_progress(each)),
                "baseline" if each["operation_id"] == comparison["baseline"] else "",
            ]
            for each in comparison["operations"]
        ),
        elastic="NAME",
    )
    for each in comparison["operations"]:
        if each["problem"]:
            session.out.note(f"{each['operation_id']}: {each['problem']}")


def _progress(operation: ComparedOperation) -> str:
    return f"{operation['percent']:.0f} %, {operation['unit'] or 'step'} {operation['step']}"


def _say_differences(
    session: Session, comparison: Comparison, ids: Sequence[str], names: Sequence[str]
) -> None:
    rows = [(part["part"], row) for part in comparison["differences"] for row in part["rows"]]
    session.out.text("")
    if not rows:
        session.out.text("No difference in config, code, data and environment.")
        return
    session.out.table(
        ["DIFFERENCE", "FIELD", *names],
        (
            [
                looks.cell(part),
                looks.cell(row["path"]),
                *(looks.cell(_value(row["values"], each)) for each in ids),
            ]
            for part, row in rows
        ),
    )


def _value(
    values: Mapping[str, object], operation_id: str, max_chars: int | None = MAX_CHARS
) -> str | None:
    """Return a value as JSON, texts as they are; None where the operation has none."""
    if operation_id not in values:
        return None
    value = values[operation_id]
    text = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
    return text if max_chars is None or len(text) <= max_chars else f"{text[:max_chars]}…"


def _say_values(
    session: Session, rows: Sequence[ComparedValues], ids: Sequence[str], names: Sequence[str]
) -> None:
    session.out.text("")
    if not rows:
        session.out.text("No metric has been measured yet.")
        return
    session.out.table(
        ["METRIC", "VALUE", "BETTER", *names],
        (
            [
                looks.cell(row["name"]),
                looks.cell(row["what"]),
                looks.cell({"min": "lower", "max": "higher"}.get(row["mode"] or "")),
                *(looks.cell(_measured(row, each)) for each in ids),
            ]
            for row in rows
        ),
    )


def _measured(row: ComparedValues, operation_id: str) -> str | None:
    cell = row["values"].get(operation_id)
    if cell is None:
        return None
    delta = cell["delta"]
    text = looks.number(cell["value"])
    if delta is not None:
        text += f" ({'+' if delta > 0 else ''}{looks.number(delta)})"
    return f"{text} *" if operation_id in row["best"] else text
