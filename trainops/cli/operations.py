"""Commands on operations: list, look at, follow, stop, go on, delete."""

from collections.abc import Sequence
from typing import Annotated

import typer

from trainops.cli import following, grouping, looks, previews, resuming
from trainops.cli.following import say_commands, watch_to_the_end
from trainops.cli.session import Session, command
from trainops.cli.tables import Text
from trainops.client.api import Param, RowPage
from trainops.client.problems import ExitCode, Problem
from trainops.client.references import operation_id, short_ids
from trainops.client.responses import AttentionReason, Event, Message, Operation, ReceiptOfAttempt
from trainops.paths import CLONE, COMMAND

PANEL = "Operations"
MAX_LIMIT = 500
Id = Annotated[
    str,
    typer.Argument(metavar="ID", help="Complete id, or at least its last 4 or first 8 letters."),
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Follow the operation until it ends.")]


def register(app: typer.Typer) -> None:
    """Add these commands, in the order of the help."""
    for name, function in (
        ("ls", ls),
        ("show", show),
        ("watch", watch),
        ("events", events),
        ("receipt", receipt),
        ("cancel", cancel),
        ("resume", resume),
        ("rm", rm),
    ):
        command(app, name, panel=PANEL)(function)


def ls(
    session: Session,
    query: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="QUERY…",
            help="Query in quotes, such as 'val_loss<0.1 tag:night older:7d' (docs/lists.md).",
        ),
    ] = None,
    state: Annotated[str | None, typer.Option(help="State: RUNNING, FAILED, …")] = None,
    kind: Annotated[str | None, typer.Option(help="Kind, as `recipes` lists it.")] = None,
    recipe: Annotated[str | None, typer.Option(help="Name of the recipe.")] = None,
    reason: Annotated[str | None, typer.Option(help="Reason: WORKER_LOST, STALLED, …")] = None,
    tag: Annotated[str | None, typer.Option(help="Only operations with this tag.")] = None,
    mine: Annotated[bool, typer.Option("--mine", help="Only your own operations.")] = False,
    resumable: Annotated[
        bool, typer.Option("--resumable", help="Only resumable operations.")
    ] = False,
    attention: Annotated[
        bool,
        typer.Option("--attention", help="Only operations that need attention: failed, stuck, …"),
    ] = False,
    search: Annotated[str | None, typer.Option(help="Search in names and ids.")] = None,
    sort: Annotated[
        str | None,
        typer.Option(help="Metric, config field or column; descending: --sort=-NAME."),
    ] = None,
    group_by: Annotated[
        str | None,
        typer.Option(help="List groups: study, tag, project, owner, a config field, …"),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=MAX_LIMIT, help="Show at most N.")] = 20,
) -> None:
    """List operations, latest first, or groups of them.

    Example: trainops ls 'val_loss<0.1 older:7d' --sort=-val_accuracy
    """
    wanted: dict[str, Param] = {
        "q": " ".join(query or []) or None,
        "state": state.upper() if state else None,
        "kind": kind,
        "recipe": recipe,
        "reason": reason.upper() if reason else None,
        "tag": tag,
        "owner": "me" if mine else None,
        "resumable": "true" if resumable else None,
        "needs_attention": "true" if attention else None,
        "search": search,
    }
    if group_by:
        grouping.say_groups(session, group_by, limit, wanted)
        return
    page: RowPage[Operation] = session.api.rows("operations", **wanted, ordering=sort, limit=limit)
    if session.out.is_data:
        session.out.data(_with_fields(session, page.rows))
    elif not page.rows and any(wanted.values()):
        session.out.note("No operation matches.")
    else:
        _list(session, page, limit, with_reasons=attention)


def _with_fields(session: Session, rows: Sequence[Operation]) -> Sequence[Operation]:
    """Return operations with the chosen fields, some of which only single ones have: `config`."""
    if not session.out.missing(rows):
        return rows
    return [session.api.get(f"operations/{row['operation_id']}") for row in rows]


def _list(
    session: Session, page: RowPage[Operation], limit: int, *, with_reasons: bool = False
) -> None:
    if not page.rows:
        first = "run examples/digits.yaml --follow" if CLONE else "recipes"
        session.out.note(f"No operations. Submit one: {COMMAND} {first}")
        return
    ids = short_ids([row["operation_id"] for row in page.rows])
    why = ["WHY"] if with_reasons else []
    last = ["OBJECTIVE", "PROGRESS", "LEFT", "METRICS", "OWNER", "CREATED"]
    session.out.table(
        ["ID", "NAME", "STATE", *why, *last],
        (
            [
                looks.cell(short),
                looks.cell(row["name"]),
                looks.state(row["status"]),
                *([looks.cell(_codes(row))] if with_reasons else []),
                looks.cell(looks.objective(row)),
                looks.cell(looks.progress(row)),
                looks.cell(looks.duration(row.get("eta_seconds"))),
                looks.cell(looks.other_metrics(row, at_most=1)),
                looks.cell(row.get("owner")),
                looks.cell(looks.ago(row["created_at"])),
            ]
            for short, row in zip(ids, page.rows, strict=True)
        ),
        narrow=["ID", "NAME", "STATE", *(why or ["OBJECTIVE", "PROGRESS"])],
        elastic="NAME",
    )
    if page.has_more:
        session.out.note(f"There are more: --limit {min(limit * 5, MAX_LIMIT)}")


def _codes(row: Operation) -> str:
    """Return why it needs attention, as the query `attention:` takes it."""
    return ", ".join(each["code"].lower() for each in row.get("attention") or ())


def show(session: Session, reference: Id) -> None:
    """Show an operation: progress, outcome and allowed actions.

    Example: trainops show 3f9b3c
    """
    operation: Operation = session.api.get(f"operations/{operation_id(session.api, reference)}")
    if session.out.is_data:
        session.out.data(operation)
        return
    error = operation.get("error") or {}
    blocked = operation.get("waiting_for")
    eta = operation.get("eta_seconds")
    session.out.pairs(
        (
            ("id", operation["operation_id"]),
            ("name", operation["name"]),
            ("state", looks.state(operation["status"])),
            ("progress", looks.progress(operation)),
            ("left", eta and looks.duration(eta)),
            ("objective", looks.objective(operation)),
            ("metrics", looks.other_metrics(operation, at_most=10)),
            ("waits for", blocked and blocked.get("message")),
            *(("attention", _attention(each)) for each in operation.get("attention") or ()),
            ("reason", operation.get("reason")),
            ("error", error.get("message")),
            ("stop", operation.get("stop_requested")),
            ("owner", operation.get("owner")),
            ("tags", ", ".join(operation.get("tags") or [])),
            ("label", operation.get("queue")),
            ("project", operation.get("project")),
            ("attempt", operation.get("attempt")),
            ("worker", operation.get("worker_id")),
            ("created", operation.get("created_at") and looks.when(operation.get("created_at"))),
            ("started", operation.get("started_at") and looks.when(operation.get("started_at"))),
            ("finished", operation.get("finished_at") and looks.when(operation.get("finished_at"))),
            ("config hash", operation.get("config_hash")),
            ("can", ", ".join(operation.get("allowed_actions") or [])),
            ("page", session.server.page(operation["operation_id"])),
        )
    )


def _attention(reason: AttentionReason) -> Text:
    return looks.words(f"{reason['message']}. {reason['next_step']}")


def watch(session: Session, reference: Id) -> None:
    """Follow an operation with a progress bar and its latest metrics.

    Example: trainops watch 3f9b3c
    """
    watch_to_the_end(session, operation_id(session.api, reference))


def events(
    session: Session,
    reference: Id,
    limit: Annotated[int, typer.Option(min=1, max=MAX_LIMIT, help="Show at most N.")] = 50,
) -> None:
    """List the events of an operation: time, user and reason.

    Example: trainops events 3f9b3c --limit 10
    """
    found = operation_id(session.api, reference)
    page: RowPage[Event] = session.api.rows(f"operations/{found}/events", limit=limit)
    if session.out.is_data:
        session.out.data(page.rows)
        return
    session.out.table(
        ["AT", "WHAT", "BY", "ATTEMPT", "WHY"],
        (
            [
                looks.cell(looks.at(row["at"])),
                looks.cell(row["what"]),
                looks.cell(row["actor"]),
                looks.cell(row["attempt"]),
                looks.words(row["note"]),
            ]
            for row in page.rows
        ),
        narrow=["AT", "WHAT", "WHY"],
        elastic="WHY",
    )


def receipt(
    session: Session,
    reference: Id,
    attempt: Annotated[
        int | None, typer.Option(min=1, help="Attempt; by default, the latest that resumed.")
    ] = None,
) -> None:
    """List what a resume restored, and whether exactly.

    Example: trainops receipt 3f9b3c
    """
    found = operation_id(session.api, reference)
    attempts: RowPage[ReceiptOfAttempt]
    attempts = session.api.rows(f"operations/{found}/attempts", limit=MAX_LIMIT)
    for each in attempts.rows:
        restored = each["receipt"]
        if restored and restored["checkpoint"] and attempt in (None, each["number"]):
            break
    else:
        which = "no attempt has" if attempt is None else f"attempt {attempt} has not"
        raise Problem(f"{found}: {which} resumed from a checkpoint.", ExitCode.NOT_FOUND)
    if session.out.is_data:
        session.out.data(restored)
        return
    session.out.table(
        ["PART", "RESTORED", "EXACT", "NOTE"],
        (
            [item["part"], *(_yes(item[key]) for key in ("restored", "exact")), item["note"]]
            for item in restored["items"]
        ),
    )
    exactly = "exactly" if restored["exact"] else "not exactly"
    session.out.note(
        f"Attempt {each['number']} continued {exactly} from {restored['checkpoint']}, "
        f"step {restored['step']}."
    )


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def cancel(
    session: Session,
    reference: Id,
    now: Annotated[
        bool, typer.Option("--now", help="Kill it; work since the last checkpoint is lost.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has stopped.")] = False,
) -> None:
    """Cancel an operation: save a checkpoint at the next safe point, then stop.

    Example: trainops cancel 3f9b3c --wait
    """
    found = operation_id(session.api, reference)
    verb = "kill" if now else "cancel"
    operation: Operation = session.api.post(f"operations/{found}/{verb}")
    if wait:
        operation = _wait(session, found)
    if session.out.is_data:
        session.out.data(operation)
    elif operation["status"] in looks.FINISHED:
        session.out.text(f"{operation['state']} at {looks.progress(operation)}")
        session.out.note(f"  resume  {COMMAND} resume {found} --follow")
    else:
        session.out.text(
            "Killing the operation." if now else "Cancelling: saving a checkpoint first."
        )
        session.out.note(f"  follow  {COMMAND} watch {found}")


def _wait(session: Session, found: str) -> Operation:
    *_, operation = following.states(session.api, found, lost=session.out.note)
    return operation


def resume(
    session: Session,
    reference: Id,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            help="Checkpoint id, latest, best or best:METRIC; by default the latest healthy one."
        ),
    ] = None,
    accept_inexact: resuming.AcceptInexact = False,
    is_preview: previews.IsPreview = False,
    follow_it: Follow = False,
) -> None:
    """Resume an operation from its latest healthy checkpoint.

    If files of its recipe were changed on the server, the command names them and asks first.

    Example: trainops resume 3f9b3c --checkpoint best --follow
    """
    found = operation_id(session.api, reference)
    body = {"checkpoint_id": checkpoint} if checkpoint else {}
    if is_preview:
        previews.show(session, found, "resume", body)
        return
    chosen = ["--checkpoint", checkpoint] if checkpoint else []
    resumption = resuming.post(
        session, f"operations/{found}/resume", body,
        command=" ".join(["resume", found, *chosen, *(["--follow"] if follow_it else [])]),
        accept_inexact=accept_inexact,
    )  # fmt: skip
    if not (session.out.is_data and follow_it):
        _resumed(session, found, resumption)
    if follow_it:
        watch_to_the_end(session, found)


def _resumed(session: Session, found: str, resumption: Message) -> None:
    if session.out.is_data:
        session.out.data(resumption)
        return
    session.out.text(looks.plain(resumption["message"]))
    say_commands(session, found)


def rm(
    session: Session,
    reference: Id,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
) -> None:
    """Delete an operation with its checkpoints, metrics and logs.

    Example: trainops rm 3f9b3c --yes
    """
    found = operation_id(session.api, reference)
    operation: Operation = session.api.get(f"operations/{found}")
    confirm(session, f"Delete {looks.plain(operation['name'])!r} ({found}) with all its data?", yes)
    answer: Message = session.api.delete(f"operations/{found}")
    if session.out.is_data:
        session.out.data(answer)
    else:
        session.out.text(looks.plain(answer["message"]))


def confirm(session: Session, question: str, yes: bool) -> None:
    """Ask, unless --yes was given. Raises Problem without a terminal."""
    if yes:
        return
    if not session.out.can_ask:
        raise Problem("Not interactive: pass --yes.", ExitCode.USAGE)
    if not typer.confirm(question, err=True):
        raise Problem("Nothing was changed.")
