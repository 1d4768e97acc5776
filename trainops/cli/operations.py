"""Commands on operations: list, look at, follow, stop, go on, delete."""

from typing import Annotated, Any

import typer

from trainops.cli import following, looks
from trainops.cli.api import Rows
from trainops.cli.following import say_commands, watch_to_the_end
from trainops.cli.problems import ExitCode, Problem, Refused
from trainops.cli.references import operation_id
from trainops.cli.session import Session, command
from trainops.cli.submission import Submission
from trainops.paths import CLONE, COMMAND

PANEL = "Operations"
MAX_LIMIT = 500
Id = Annotated[
    str, typer.Argument(metavar="ID", help="Whole, or a beginning or end that fits one.")
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Watch it until it is finished.")]


def register(app: typer.Typer) -> None:
    """Add these commands, in the order of the help."""
    for name, function in (
        ("ls", ls),
        ("show", show),
        ("watch", watch),
        ("events", events),
        ("cancel", cancel),
        ("resume", resume),
        ("fork", fork),
        ("rm", rm),
    ):
        command(app, name, panel=PANEL)(function)


def ls(
    session: Session,
    state: Annotated[str | None, typer.Option(help="RUNNING, FAILED, …")] = None,
    kind: Annotated[str | None, typer.Option(help="training, backtest, rl …")] = None,
    tag: Annotated[str | None, typer.Option(help="Only with this tag.")] = None,
    mine: Annotated[bool, typer.Option("--mine", help="Only your own.")] = False,
    resumable: Annotated[bool, typer.Option("--resumable", help="Only those to resume.")] = False,
    attention: Annotated[
        bool,
        typer.Option("--attention", help="Only failed ones and those with a bad self-check."),
    ] = False,
    search: Annotated[str | None, typer.Option(help="In names and ids.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=MAX_LIMIT, help="The newest so many.")] = 20,
) -> None:
    """List operations, the newest first."""
    page = session.api.rows(
        "operations",
        state=state.upper() if state else None,
        kind=kind,
        tag=tag,
        owner="me" if mine else None,
        resumable="true" if resumable else None,
        needs_attention="true" if attention else None,
        search=search,
        limit=limit,
    )
    if session.out.is_json:
        session.out.json(page.rows)
    else:
        _list(session, page, limit)


def _list(session: Session, page: Rows, limit: int) -> None:
    if not page.rows:
        first = "run examples/digits.yaml --follow" if CLONE else "recipes"
        session.out.note(f"No operations. Submit one: {COMMAND} {first}")
        return
    session.out.table(
        ["ID", "NAME", "STATE", "PROGRESS", "LEFT", "METRICS", "OWNER", "CREATED"],
        (
            [
                looks.cell(row["operation_id"]),
                looks.cell(row["name"]),
                looks.state(row["status"]),
                looks.cell(looks.progress(row)),
                looks.cell(looks.duration(row.get("eta_seconds"))),
                looks.cell(looks.metrics(row.get("metrics"), at_most=2)),
                looks.cell(row.get("owner")),
                looks.cell(looks.ago(row["created_at"])),
            ]
            for row in page.rows
        ),
        narrow=["ID", "NAME", "STATE", "PROGRESS"],
        elastic="NAME",
    )
    if page.has_more:
        session.out.note(f"There are more: --limit {min(limit * 5, MAX_LIMIT)}")


def show(session: Session, reference: Id) -> None:
    """Show one operation: how far it is, how it ended, what can be done."""
    operation = session.api.get(f"operations/{operation_id(session.api, reference)}")
    if session.out.is_json:
        session.out.json(operation)
        return
    error = operation.get("error") or {}
    session.out.pairs(
        (
            ("id", operation["operation_id"]),
            ("name", operation["name"]),
            ("state", looks.state(operation["status"])),
            ("progress", looks.progress(operation)),
            ("left", operation.get("eta_seconds") and looks.duration(operation["eta_seconds"])),
            ("metrics", looks.metrics(operation.get("metrics"), at_most=10)),
            ("waits for", (operation.get("waiting_for") or {}).get("message")),
            ("reason", operation.get("reason")),
            ("error", error.get("message")),
            ("stop", operation.get("stop_requested")),
            ("owner", operation.get("owner")),
            ("tags", ", ".join(operation.get("tags") or [])),
            ("label", operation.get("queue")),
            ("attempt", operation.get("attempt")),
            ("worker", operation.get("worker_id")),
            ("created", operation.get("created_at")),
            ("started", operation.get("started_at")),
            ("finished", operation.get("finished_at")),
            ("config hash", operation.get("config_hash")),
            ("can", ", ".join(operation.get("allowed_actions") or [])),
            ("page", session.server.page(operation["operation_id"])),
        )
    )


def watch(session: Session, reference: Id) -> None:
    """Follow an operation with a progress bar and its newest metrics."""
    watch_to_the_end(session, operation_id(session.api, reference))


def events(
    session: Session,
    reference: Id,
    limit: Annotated[int, typer.Option(min=1, max=MAX_LIMIT, help="The newest so many.")] = 50,
) -> None:
    """List what happened to an operation: when, by whom, why."""
    found = operation_id(session.api, reference)
    page = session.api.rows(f"operations/{found}/events", limit=limit)
    if session.out.is_json:
        session.out.json(page.rows)
        return
    session.out.table(
        ["AT", "WHAT", "BY", "ATTEMPT", "WHY"],
        (
            [
                *(looks.cell(row[name]) for name in ("at", "what", "actor", "attempt")),
                looks.words(row["note"]),
            ]
            for row in page.rows
        ),
        narrow=["AT", "WHAT", "WHY"],
        elastic="WHY",
    )


def cancel(
    session: Session,
    reference: Id,
    now: Annotated[
        bool, typer.Option("--now", help="Kill it; the work since the last checkpoint is lost.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Until it has stopped.")] = False,
) -> None:
    """Ask an operation to save a checkpoint at its next safe point and stop."""
    found = operation_id(session.api, reference)
    operation = session.api.post(f"operations/{found}/{'kill' if now else 'cancel'}")
    if wait:
        operation = _wait(session, found)
    if session.out.is_json:
        session.out.json(operation)
    elif operation["status"] in looks.FINISHED:
        session.out.text(f"{operation['state']} at {looks.progress(operation)}")
        session.out.note(f"  resume  {COMMAND} resume {found} --follow")
    else:
        session.out.text("It is told to stop." if now else "It saves a checkpoint and stops.")
        session.out.note(f"  follow  {COMMAND} watch {found}")


def _wait(session: Session, found: str) -> dict[str, Any]:
    *_, operation = following.states(session.api, found, lost=session.out.note)
    return operation


def resume(
    session: Session,
    reference: Id,
    checkpoint: Annotated[
        str | None, typer.Option(help="Its id, latest or best; else the newest healthy.")
    ] = None,
    follow_it: Follow = False,
) -> None:
    """Continue an operation from its newest healthy checkpoint."""
    found = operation_id(session.api, reference)
    body = {"checkpoint_id": checkpoint} if checkpoint else {}
    resumption = session.api.post(f"operations/{found}/resume", body)
    if not (session.out.is_json and follow_it):
        _resumed(session, found, resumption)
    if follow_it:
        watch_to_the_end(session, found)


def _resumed(session: Session, found: str, resumption: dict[str, Any]) -> None:
    if session.out.is_json:
        session.out.json(resumption)
        return
    session.out.text(looks.plain(resumption["message"]))
    say_commands(session, found)


def fork(
    session: Session,
    reference: Id,
    checkpoint: Annotated[
        str | None, typer.Option(help="Its id, latest or best; else the newest healthy.")
    ] = None,
    name: Annotated[str, typer.Option(help="Of the new operation.")] = "",
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="What differs in config; repeatable."),
    ] = None,
    follow_it: Follow = False,
) -> None:
    """Submit a new operation that goes on from a checkpoint of another."""
    found = operation_id(session.api, reference)
    wanted = Submission({"checkpoint_id": checkpoint or "", "name": name}, "fork")
    for typed in assignments or ():
        wanted.assign(typed)
    try:
        forked = session.api.post(f"operations/{found}/fork", wanted.body)
    except Refused as refused:
        raise wanted.explain(refused) from refused
    if session.out.is_json and not follow_it:
        session.out.json(forked)
    elif not session.out.is_json:
        session.out.text(f"{forked['id']}, from {found} at {forked['unit']} {forked['step']}")
        say_commands(session, forked["operation_id"])
    if follow_it:
        watch_to_the_end(session, forked["operation_id"])


def rm(
    session: Session,
    reference: Id,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete an operation with its checkpoints, metrics and logs."""
    found = operation_id(session.api, reference)
    operation = session.api.get(f"operations/{found}")
    confirm(session, f"Delete {looks.plain(operation['name'])!r} ({found}) with all it saved?", yes)
    answer = session.api.delete(f"operations/{found}")
    if session.out.is_json:
        session.out.json(answer)
    else:
        session.out.text(looks.plain(answer["message"]))


def confirm(session: Session, question: str, yes: bool) -> None:
    """Ask, unless --yes was given. Raises Problem where nobody is there to answer."""
    if yes:
        return
    if not session.out.stderr.is_terminal:
        raise Problem("Nobody is there to ask; give --yes.", ExitCode.USAGE)
    if not typer.confirm(question, err=True):
        raise Problem("Nothing was deleted.")
