"""Commands on studies: submit, list, compare, extend, stop, resume, delete."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainops.cli import looks, resuming, submission
from trainops.cli.operations import confirm
from trainops.cli.session import Session, command
from trainops.cli.submission import Submission
from trainops.cli.type_names import WordedGroup
from trainops.client.problems import ExitCode, Problem, Refused
from trainops.client.references import study_id
from trainops.client.responses import Fold, Message, Study, StudyRow, Trial
from trainops.paths import COMMAND
from trainops.plain import Json, JsonObject
from trainops.plain_yaml import UNREADABLE, parsed, reason
from trainops.submission_file import STUDY_FIELDS

if TYPE_CHECKING:
    from trainops.client.api import RowPage

Id = Annotated[
    str,
    typer.Argument(metavar="ID", help="Complete id, or at least its last 4 or first 8 letters."),
]
MAX_VALUES = 6  # of a study's lines on a terminal


def register(app: typer.Typer) -> None:
    """Add the group `studies`."""
    group = typer.Typer(
        cls=WordedGroup,
        no_args_is_help=True,
        help="Run many operations with different parameter values.\n\nExample: trainops studies ls",
    )
    for name, function in (
        ("run", run),
        ("ls", ls),
        ("show", show),
        ("extend", extend),
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
            help="Values of a config field: 5,10,20; not for grid also {low: 5, high: 20}.",
        ),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Override a config field; repeatable."),
    ] = None,
    random: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Run N random trials.")
    ] = None,
    sampler: Annotated[
        str | None, typer.Option(help="Sampler: grid (default), random, qmc, tpe or cmaes.")
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Number of trials (not for grid). Default: 20.")
    ] = None,
    parallel: Annotated[
        int | None,
        typer.Option(min=1, help="Active trials at a time. Default: 4 for tpe and cmaes."),
    ] = None,
    pruner: Annotated[str | None, typer.Option(help="median, asha or hyperband.")] = None,
    max_seconds: Annotated[
        float | None, typer.Option(help="Compute time after which no trial is submitted.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the sampler.")] = None,
    folds: Annotated[
        int | None,
        typer.Option(min=1, help="Folds of a walk-forward analysis (dated data only)."),
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="Objective, as a dotted path in the result.")
    ] = None,
    mode: Annotated[
        str | None, typer.Option(help="Whether to minimise (min) or maximise (max) the objective.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Display name.")] = None,
    project: Annotated[str | None, typer.Option(help="Project.")] = None,
) -> None:
    """Submit operations with different values, suggested by a sampler.

    Example: trainops studies run digits.yaml --try learning_rate=0.001,0.01 --set epochs=20
    """
    wanted = submission.read(file, also=STUDY_FIELDS)
    for assignment in assignments or []:
        wanted.assign(assignment)
    design = wanted.section("design")
    for typed in tries or []:
        path, values = _tried(typed)
        submission.section_of(design, "values", wanted.source)[path] = values
    if pruner is not None:
        submission.section_of(design, "pruner", wanted.source)["method"] = pruner
    options = {
        "method": sampler or (random and "random"), "samples": trials or random, "seed": seed,
        "parallel": parallel, "max_seconds": max_seconds,
    }  # fmt: skip
    design |= {field: value for field, value in options.items() if value is not None}
    if folds is not None:
        submission.section_of(design, "walk_forward", wanted.source)["folds"] = folds
    given = {"metric": metric, "mode": mode, "name": name, "project": project}
    wanted.body |= {field: value for field, value in given.items() if value is not None}
    _submitted(session, _submit(session, wanted))


def _submit(session: Session, wanted: Submission) -> Study:
    try:
        study: Study = session.api.submit("studies", wanted.body)
    except Refused as refused:
        raise wanted.explain(refused) from refused
    return study


def _submitted(session: Session, study: Study) -> None:
    if session.out.is_data:
        session.out.data(study)
        return
    session.out.text(study["id"])
    left = f"; skipped invalid combinations: {len(study['left_out'])}" if study["left_out"] else ""
    session.out.note(f"Submitted {looks.operations(len(study['operations']))}{left}.")
    session.out.note(f"  compare  {COMMAND} studies show {study['id']}")
    session.out.note(f"  cancel   {COMMAND} studies cancel {study['id']}")


def _tried(typed: str) -> tuple[str, list[Json] | JsonObject]:
    """Return the path and the values of one --try. Raises Problem."""
    path, equals, text = typed.partition("=")
    text = text.strip()
    try:
        values = parsed(text if text.startswith(("[", "{")) else f"[{text}]")[0]
    except UNREADABLE as error:
        raise Problem(f"--try {typed}: {reason(error)}", ExitCode.USAGE) from error
    if not equals or not path.strip() or not values or not isinstance(values, list | dict):
        hint = "allowed: PATH=VALUES, for example parameters.fast=5,10,20"
        raise Problem(f"--try {typed}: {hint}", ExitCode.USAGE)
    return path.strip(), values


def ls(
    session: Session,
    mine: Annotated[bool, typer.Option("--mine", help="Only your own studies.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Show at most N.")] = 20,
) -> None:
    """List studies, latest first.

    Example: trainops studies ls --mine
    """
    page: RowPage[StudyRow] = session.api.rows("studies", owner="me" if mine else None, limit=limit)
    if session.out.is_data:
        session.out.data(page.rows)
        return
    if not page.rows:
        session.out.note("No studies.")
        return
    session.out.table(
        ["ID", "NAME", "OPERATIONS", "PROGRESS", "OBJECTIVE", "OWNER", "CREATED"],
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
    """Show a study with its operations, the best first.

    Example: trainops studies show 3f9b3c
    """
    study: Study = session.api.get(f"studies/{study_id(session.api, reference)}")
    if session.out.is_data:
        session.out.data(study)
        return
    best = study.get("best")
    session.out.pairs(
        (
            ("id", study["id"]),
            ("name", study["name"]),
            ("operations", f"{_counts(study)} of {study['num_planned']}"),
            ("progress", f"{study['percent']:.0f} %"),
            ("objective", f"{study['metric']}, {study['mode']}"),
            ("best", best and f"{looks.number(best['value'])}  {_values(best['values'])}"),
            ("front", ", ".join(study.get("front", [])) or None),
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


def extend(
    session: Session,
    reference: Id,
    trials: Annotated[int, typer.Option(min=1, help="Number of further trials.")] = 10,
    seconds: Annotated[
        float, typer.Option(min=0, help="Further compute time, if the study limits it.")
    ] = 0,
) -> None:
    """Continue a study with more trials.

    Example: trainops studies extend 3f9b3c --trials 10
    """
    body: JsonObject = {"trials": trials, "seconds": seconds}
    _say(session, session.api.post(f"studies/{study_id(session.api, reference)}/extend", body))


def _say_fold(session: Session, fold: Fold) -> None:
    if fold["values"] is None:
        chosen = "not selected yet"
    else:
        inside, outside = (
            "—" if value is None else looks.number(value)
            for value in (fold["in_sample"], fold["out_of_sample"])
        )
        chosen = f"{_values(fold['values'])}: {inside} in sample, {outside} out of sample"
    session.out.text(f"fold {fold['number']}, {fold['split']} to {fold['end']}: {chosen}")


def cancel(
    session: Session,
    reference: Id,
    now: Annotated[
        bool,
        typer.Option(
            "--now", help="Kill the operations; work since their last checkpoints is lost."
        ),
    ] = False,
) -> None:
    """Cancel all active operations of a study; no more are submitted.

    Example: trainops studies cancel 3f9b3c --now
    """
    found = study_id(session.api, reference)
    _say(session, session.api.post(f"studies/{found}/{'kill' if now else 'cancel'}"))


def resume(session: Session, reference: Id, accept_inexact: resuming.AcceptInexact = False) -> None:
    """Resume the failed and cancelled operations of a study.

    If files of its recipe were changed on the server, the command names them and asks first.

    Example: trainops studies resume 3f9b3c
    """
    found = study_id(session.api, reference)
    answer = resuming.post(
        session, f"studies/{found}/resume", {},
        command=f"studies resume {found}", accept_inexact=accept_inexact,
    )  # fmt: skip
    _say(session, answer)


def rm(
    session: Session,
    reference: Id,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
) -> None:
    """Delete a study with all its operations.

    Example: trainops studies rm 3f9b3c --yes
    """
    found = study_id(session.api, reference)
    study: Study = session.api.get(f"studies/{found}")
    number = looks.operations(len(study["operations"]))
    confirm(session, f"Delete {looks.plain(study['name'])!r} ({found}) with {number}?", yes)
    _say(session, session.api.delete(f"studies/{found}"))


def _say(session: Session, answer: Message) -> None:
    if session.out.is_data:
        session.out.data(answer)
    else:
        session.out.text(looks.plain(answer["message"]))


def _counts(row: StudyRow) -> str:
    return ", ".join(f"{number} {state.lower()}" for state, number in row["counts"].items()) or "0"


def _values(values: Mapping[str, object]) -> str:
    shown = [f"{path.rpartition('.')[2]} {value}" for path, value in values.items()]
    return ", ".join(shown[:MAX_VALUES])


def _fold(line: Trial) -> str | None:
    return (
        f"{line['fold']} {'out-of-sample' if line['is_test'] else 'in-sample'}"
        if line["fold"]
        else None
    )
