"""Commands on studies: submit, list, compare, stop, go on, delete."""

from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

import typer

from trainops.cli import looks, submission
from trainops.cli.operations import confirm
from trainops.cli.plain_yaml import UNREADABLE, parsed, reason
from trainops.cli.problems import ExitCode, Problem, Refused
from trainops.cli.references import study_id
from trainops.cli.session import Session, command
from trainops.cli.submission import Submission
from trainops.paths import COMMAND

Id = Annotated[
    str, typer.Argument(metavar="ID", help="Whole, or a beginning or end that fits one.")
]
OF_STUDIES = ("design", "metric", "mode")  # in a file, beside what an operation's has
MAX_VALUES = 6  # of a study's lines on a terminal


def register(app: typer.Typer) -> None:
    """Add the group `studies`."""
    group = typer.Typer(no_args_is_help=True, help="Many operations that differ in some values.")
    for name, function in (
        ("run", run),
        ("ls", ls),
        ("show", show),
        ("cancel", cancel),
        ("resume", resume),
        ("rm", rm),
    ):
        command(group, name)(function)
    app.add_typer(group, name="studies", rich_help_panel="Operations")


def run(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE.yaml", show_default=False)],
    tries: Annotated[
        list[str] | None,
        typer.Option(
            "--try",
            metavar="PATH=VALUES",
            help="Values of a field of config: 5,10,20; for --random also {low: 5, high: 20}.",
        ),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Change a field of config; repeatable."),
    ] = None,
    random: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="N sets at random, not all of them.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of --random.")] = None,
    folds: Annotated[
        int | None, typer.Option(min=1, help="Walk forward through a backtest's series.")
    ] = None,
    metric: Annotated[str | None, typer.Option(help="What they are judged by.")] = None,
    mode: Annotated[str | None, typer.Option(help="min or max.")] = None,
    name: Annotated[str | None, typer.Option(help="For people.")] = None,
) -> None:
    """Submit an operation for each set of values."""
    wanted = submission.read(file, also=OF_STUDIES)
    for assignment in assignments or []:
        wanted.assign(assignment)
    design = wanted.body.setdefault("design", {})
    for typed in tries or []:
        path, values = _tried(typed)
        design.setdefault("values", {})[path] = values
    if random is not None:
        design |= {"method": "random", "samples": random}
    if seed is not None:
        design["seed"] = seed
    if folds is not None:
        design["walk_forward"] = {**(design.get("walk_forward") or {}), "folds": folds}
    given = {"metric": metric, "mode": mode, "name": name}
    wanted.body |= {field: value for field, value in given.items() if value is not None}
    _submitted(session, _submit(session, wanted))


def _submit(session: Session, wanted: Submission) -> dict[str, Any]:
    try:
        study = session.api.post("studies", wanted.body, headers={"Idempotency-Key": str(uuid4())})
    except Refused as refused:
        raise wanted.explain(refused) from refused
    return dict(study)


def _submitted(session: Session, study: dict[str, Any]) -> None:
    if session.out.is_json:
        session.out.json(study)
        return
    session.out.text(study["id"])
    left = f"; {len(study['left_out'])} sets are left out" if study["left_out"] else ""
    session.out.note(f"Submitted {len(study['operations'])} operations{left}.")
    session.out.note(f"  compare  {COMMAND} studies show {study['id']}")
    session.out.note(f"  cancel   {COMMAND} studies cancel {study['id']}")


def _tried(typed: str) -> tuple[str, Any]:
    """Return the path and the values of one --try. Raises Problem."""
    path, equals, text = typed.partition("=")
    text = text.strip()
    try:
        values = parsed(text if text.startswith(("[", "{")) else f"[{text}]")[0]
    except UNREADABLE as error:
        raise Problem(f"--try {typed}: {reason(error)}", ExitCode.USAGE) from error
    if not equals or not path.strip() or not values:
        hint = "write it as PATH=VALUES, for example parameters.fast=5,10,20"
        raise Problem(f"--try {typed}: {hint}", ExitCode.USAGE)
    return path.strip(), values


def ls(
    session: Session,
    mine: Annotated[bool, typer.Option("--mine", help="Only your own.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=500, help="The newest so many.")] = 20,
) -> None:
    """List studies, the newest first."""
    page = session.api.rows("studies", owner="me" if mine else None, limit=limit)
    if session.out.is_json:
        session.out.json(page.rows)
        return
    if not page.rows:
        session.out.note("No studies.")
        return
    session.out.table(
        ["ID", "NAME", "OPERATIONS", "PROGRESS", "JUDGED BY", "OWNER", "CREATED"],
        (
            [
                looks.cell(row["id"]),
                looks.cell(row["name"]),
                looks.cell(_counts(row)),
                looks.cell(f"{row['percent']:.0f} %"),
                looks.cell(f"{row['metric']}, {row['mode']}"),
                looks.cell(row["owner"]),
                looks.cell(looks.ago(row["created_at"])),
            ]
            for row in page.rows
        ),
        narrow=["ID", "NAME", "PROGRESS"],
        elastic="NAME",
    )
    if page.has_more:
        session.out.note(f"There are more: --limit {min(limit * 5, 500)}")


def show(session: Session, reference: Id) -> None:
    """Show a study with its operations beside each other, the best first."""
    study = session.api.get(f"studies/{study_id(session.api, reference)}")
    if session.out.is_json:
        session.out.json(study)
        return
    best = study.get("best")
    session.out.pairs(
        (
            ("id", study["id"]),
            ("name", study["name"]),
            ("operations", f"{_counts(study)} of {study['num_planned']}"),
            ("progress", f"{study['percent']:.0f} %"),
            ("judged by", f"{study['metric']}, {study['mode']}"),
            ("best", best and f"{looks.number(best['value'])}  {_values(best['values'])}"),
            ("left out", len(study["left_out"]) or None),
        )
    )
    for fold in study["folds"]:
        _say_fold(session, fold)
    session.out.table(
        ["OPERATION", "FOLD", "VALUES", "STATE", study["metric"].upper()],
        (
            [
                looks.cell(line["operation_id"]),
                looks.cell(_fold(line)),
                looks.cell(_values(line["study_values"])),
                looks.state(line["status"]),
                looks.cell(None if line["value"] is None else looks.number(line["value"])),
            ]
            for line in study["operations"]
        ),
        narrow=["OPERATION", "VALUES", study["metric"].upper()],
        elastic="VALUES",
    )


def _say_fold(session: Session, fold: dict[str, Any]) -> None:
    if fold["values"] is None:
        chosen = "not chosen yet"
    else:
        before, after = (
            "—" if fold[span] is None else looks.number(fold[span])
            for span in ("in_sample", "out_of_sample")
        )
        chosen = f"{_values(fold['values'])}: {before} before, {after} after"
    session.out.text(f"fold {fold['number']}, {fold['split']} to {fold['end']}: {chosen}")


def cancel(
    session: Session,
    reference: Id,
    now: Annotated[
        bool, typer.Option("--now", help="Kill them; work since the last checkpoints is lost.")
    ] = False,
) -> None:
    """Cancel all operations of a study that have not ended; no more are submitted."""
    found = study_id(session.api, reference)
    _say(session, session.api.post(f"studies/{found}/{'kill' if now else 'cancel'}"))


def resume(session: Session, reference: Id) -> None:
    """Go on with those that failed or were cancelled."""
    _say(session, session.api.post(f"studies/{study_id(session.api, reference)}/resume"))


def rm(
    session: Session,
    reference: Id,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a study with all of its operations."""
    found = study_id(session.api, reference)
    study = session.api.get(f"studies/{found}")
    number = len(study["operations"])
    confirm(
        session, f"Delete {looks.plain(study['name'])!r} ({found}) with {number} operations?", yes
    )
    _say(session, session.api.delete(f"studies/{found}"))


def _say(session: Session, answer: dict[str, Any]) -> None:
    if session.out.is_json:
        session.out.json(answer)
    else:
        session.out.text(looks.plain(answer["message"]))


def _counts(row: dict[str, Any]) -> str:
    return ", ".join(f"{number} {state.lower()}" for state, number in row["counts"].items()) or "0"


def _values(values: dict[str, Any]) -> str:
    shown = [f"{path.rpartition('.')[2]} {value}" for path, value in values.items()]
    return ", ".join(shown[:MAX_VALUES])


def _fold(line: dict[str, Any]) -> str | None:
    return f"{line['fold']} {'tried' if line['is_test'] else 'choice'}" if line["fold"] else None
