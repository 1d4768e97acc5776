"""Commands on shares: what users and projects may use, and use now."""

from typing import TYPE_CHECKING, Annotated

import typer

from trainops.cli import looks
from trainops.cli.session import Session, command
from trainops.cli.type_names import WordedGroup
from trainops.client.problems import ExitCode, Problem

if TYPE_CHECKING:
    from trainops.client.responses import Message, Share

Username = Annotated[
    str | None, typer.Argument(metavar="USERNAME", help="Username.", show_default=False)
]
Project = Annotated[
    str | None, typer.Option(help="Name of a project, instead of a user.", show_default=False)
]


def register(app: typer.Typer) -> None:
    """Add the group `shares`."""
    group = typer.Typer(
        cls=WordedGroup,
        no_args_is_help=True,
        help="List, set and delete the shares of users and projects.\n\n"
        "Example: trainops shares set ana --weight 2 --slots 8",
    )
    command(group, "ls")(ls)
    command(group, "set")(set_share)
    command(group, "rm")(rm)
    app.add_typer(group, name="shares", rich_help_panel="Access")


def ls(session: Session) -> None:
    """List the shares, and what is used of them.

    Example: trainops shares ls
    """
    found: list[Share] = session.api.get("shares")
    if session.out.is_data:
        session.out.data(found)
        return
    session.out.table(
        ["USER", "PROJECT", "MEMBERS", "WEIGHT", "SLOTS", "GPUS", "GPU HOURS", "BUDGET"],
        (
            [
                looks.cell(each["owner"]),
                looks.cell(each["project"]),
                looks.cell(_members(each)),
                looks.cell(f"{each['weight']:g}"),
                looks.cell(_of(each["used"]["slots"], each["max_slots"])),
                looks.cell(_of(each["used"]["gpus"], each["max_gpus"])),
                looks.cell(_of(round(each["used"]["gpu_hours"], 1), each["gpu_hours_per_week"])),
                looks.cell(_budget(each)),
            ]
            for each in found
        ),
        elastic="MEMBERS",
    )


def set_share(
    session: Session,
    username: Username = None,
    project: Project = None,
    members: Annotated[
        list[str] | None,
        typer.Option(
            "--member",
            metavar="USERNAME",
            help="User who may submit to the project, besides admins; repeatable.",
        ),
    ] = None,
    members_only: Annotated[
        bool,
        typer.Option("--members-only", help="Only members and admins submit to the project."),
    ] = False,
    not_preemptible: Annotated[
        bool,
        typer.Option(
            "--not-preemptible",
            help="Operations of higher priority do not preempt its running operations.",
        ),
    ] = False,
    weight: Annotated[float, typer.Option(help="Weight in the order of claims.")] = 1.0,
    slots: Annotated[
        int | None, typer.Option(min=0, help="Maximum slots in use; by default no limit.")
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(min=0, help="Maximum GPUs in use; by default no limit.")
    ] = None,
    gpu_hours: Annotated[
        float | None, typer.Option(min=0, help="GPU hours of a week; by default no limit.")
    ] = None,
    budget_gpu_hours: Annotated[
        float | None,
        typer.Option(
            min=0, help="GPU hours of a period, after which its operations on GPUs are saved."
        ),
    ] = None,
    budget_compute_hours: Annotated[
        float | None,
        typer.Option(
            min=0, help="Hours of a period, times processes, after which its operations are saved."
        ),
    ] = None,
    budget_period: Annotated[
        str, typer.Option(metavar="week|month|total", help="Period of the budget, in UTC.")
    ] = "week",
    checkpoint_bytes: Annotated[
        int | None,
        typer.Option(min=0, help="Bytes of checkpoints, above which periodic saving pauses."),
    ] = None,
) -> None:
    """Set the share of a user or a project; it replaces the present one. For admins.

    Example: trainops shares set --project vision --slots 4 --gpus 2 --gpu-hours 100
    """
    body = {
        **_whose(username, project),
        "members": members or [],
        "members_only": members_only,
        "preemptible": not not_preemptible,
        "weight": weight,
        "max_slots": slots,
        "max_gpus": gpus,
        "gpu_hours_per_week": gpu_hours,
        "budget_gpu_hours": budget_gpu_hours,
        "budget_compute_hours": budget_compute_hours,
        "budget_period": budget_period,
        "max_checkpoint_bytes": checkpoint_bytes,
    }
    share: Share = session.api.post("shares", body)
    if session.out.is_data:
        session.out.data(share)
    else:
        session.out.note(f"The share of {_name(share)} was set.")


def rm(session: Session, username: Username = None, project: Project = None) -> None:
    """Delete the share of a user or a project. For admins.

    Example: trainops shares rm ana
    """
    wanted = _whose(username, project)
    found: list[Share] = session.api.get("shares")
    chosen = [
        each for each in found if wanted in ({"owner": each["owner"]}, {"project": each["project"]})
    ]
    if not chosen:
        whose = username or f"the project {project}"
        raise Problem(f"There is no share of {whose}.", ExitCode.NOT_FOUND)
    answer: Message = session.api.delete(f"shares/{chosen[0]['share_id']}")
    if session.out.is_data:
        session.out.data(answer)
    else:
        session.out.text(looks.plain(answer["message"]))


def _whose(username: str | None, project: str | None) -> dict[str, str]:
    """Return the field of the owner or of the project. Raises Problem unless it is one."""
    if (username is None) == (project is None):
        given = "both" if username else "neither"
        raise Problem(f"Got {given}; allowed: USERNAME, or --project NAME.", ExitCode.USAGE)
    return {"owner": username} if username is not None else {"project": project or ""}


def _members(share: "Share") -> str:
    return ", ".join(share["members"]) or ("admins only" if share["members_only"] else "")


def _of(used: float, limit: float | None) -> str:
    return f"{used:g}" if limit is None else f"{used:g} of {limit:g}"


def _budget(share: "Share") -> str:
    used = share["used"]
    hours = (
        ("GPU h", used.get("budget_gpu_hours", 0.0), share.get("budget_gpu_hours")),
        ("h", used.get("budget_compute_hours", 0.0), share.get("budget_compute_hours")),
    )
    shown = [
        f"{_of(round(each, 1), limit)} {what}" for what, each, limit in hours if limit is not None
    ]
    return f"{', '.join(shown)} ({share['budget_period']})" if shown else ""


def _name(share: "Share") -> str:
    return share["owner"] or f"the project {share['project']}"
