"""Commands on notifications: rules, tests, deliveries, retries."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from trainops.cli import looks
from trainops.cli.operations import confirm
from trainops.cli.session import Session, command
from trainops.cli.type_names import WordedGroup

if TYPE_CHECKING:
    from trainops.client.api import RowPage
    from trainops.client.responses import Delivery, Message, Rule
    from trainops.plain import JsonObject

RULES, DELIVERIES = "notifications/rules", "notifications/deliveries"
RuleId = Annotated[int, typer.Argument(metavar="RULE", help="Rule id.", show_default=False)]
DeliveryId = Annotated[
    int, typer.Argument(metavar="DELIVERY", help="Delivery id.", show_default=False)
]


class On(StrEnum):
    """Events that a rule sends."""

    FAILED = "failed"
    CANCELLED = "cancelled"
    COMPLETED = "completed"
    ATTENTION = "attention"


class Condition(StrEnum):
    """Conditions of an alert."""

    PLATEAU = "plateau"
    NOT_FINITE = "not_finite"
    THROUGHPUT_HALVED = "throughput_halved"


class Mode(StrEnum):
    """Directions in which a metric improves."""

    MIN = "min"
    MAX = "max"


def register(app: typer.Typer) -> None:
    """Add the group `notifications`."""
    group = typer.Typer(
        cls=WordedGroup,
        no_args_is_help=True,
        help="Create, test and delete notification rules; list deliveries.\n\n"
        "Example: trainops notifications add ana@example.org --on failed",
    )
    for function in (ls, add, test, rm, deliveries, retry):
        command(group, function.__name__)(function)
    app.add_typer(group, name="notifications", rich_help_panel="Access")


def ls(session: Session) -> None:
    """List your notification rules; admins see those of all users.

    Example: trainops notifications ls
    """
    page: RowPage[Rule] = session.api.rows(RULES)
    if session.out.is_data:
        session.out.data(page.rows)
        return
    session.out.table(
        ["RULE", "NAME", "TARGET", "SENDS", "USER"],
        (
            [
                looks.cell(row["rule_id"]),
                looks.words(row["name"]),
                looks.words(row["target"]),
                looks.words(_sends(row)),
                looks.cell(row["user"]),
            ]
            for row in page.rows
        ),
        elastic="TARGET",
    )


def _sends(row: "Rule") -> str:
    events = [each.value for each in On if row.get(f"on_{each.value}")]
    return ", ".join([*events, row["condition"]] if row["condition"] else events)


def add(
    session: Session,
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET", help="Address of a webhook, or mail address.", show_default=False
        ),
    ],
    name: Annotated[str, typer.Option(help="Display name; by default the target.")] = "",
    on: Annotated[
        list[On], typer.Option(help="Event to send; may be repeated.", show_default=False)
    ] = [],  # noqa: B006 - typer copies it
    kind: Annotated[str, typer.Option(help="Only operations of this kind.")] = "",
    owner: Annotated[str, typer.Option(help="Only operations of this user (admins only).")] = "",
    reason: Annotated[str, typer.Option(help="Only ends with this reason.")] = "",
    tag: Annotated[str, typer.Option(help="Only operations with this tag.")] = "",
    project: Annotated[str, typer.Option(help="Only operations of this project.")] = "",
    alert: Annotated[
        Condition | None, typer.Option(help="Condition of an alert.", show_default=False)
    ] = None,
    metric: Annotated[str, typer.Option(help="Metric of the alert.")] = "",
    mode: Annotated[Mode, typer.Option(help="Direction in which the metric improves.")] = Mode.MIN,
    points: Annotated[int, typer.Option(help="Number of points of the metric.")] = 20,
    digest_hour: Annotated[
        int | None,
        typer.Option(
            min=0, max=23, help="Hour of a daily digest; by default each is sent at once.",
            show_default=False,
        ),
    ] = None,
) -> None:  # fmt: skip
    """Create a notification rule.

    Example: trainops notifications add https://hooks.example.org/x --on failed --tag night
    """
    body: JsonObject = {
        "name": (name or target)[:64], "target": target,
        "kind": kind, "reason": reason, "tag": tag, "project": project,
        "channel": "webhook" if "://" in target else "mail",
        "condition": alert.value if alert else "", "metric": metric, "mode": mode.value,
        "points": points, "digest_hour": digest_hour,
        **{f"on_{each.value}": each in on for each in On},
    }  # fmt: skip
    if owner:
        body["owner"] = owner
    rule: Rule = session.api.post(RULES, body)
    if session.out.is_data:
        session.out.data(rule)
        return
    session.out.text(str(rule["rule_id"]))
    if rule["channel"] == "webhook":
        session.out.note(f"Secret of its signature: {rule['secret']}")


def test(session: Session, rule: RuleId) -> None:
    """Send a test notification.

    Example: trainops notifications test 3
    """
    _say(session, session.api.post(f"{RULES}/{rule}/test"))


def rm(
    session: Session,
    rule: RuleId,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
) -> None:
    """Delete a notification rule with its deliveries.

    Example: trainops notifications rm 3 --yes
    """
    confirm(session, f"Delete the notification rule {rule}?", yes)
    response: Message = session.api.delete(f"{RULES}/{rule}")
    if session.out.is_data:
        session.out.data(response)
    else:
        session.out.text(response["message"])


def deliveries(session: Session) -> None:
    """List the latest deliveries of your rules, with the result of their last try.

    Example: trainops notifications deliveries
    """
    page: RowPage[Delivery] = session.api.rows(DELIVERIES)
    if session.out.is_data:
        session.out.data(page.rows)
        return
    session.out.table(
        ["DELIVERY", "RULE", "EVENT", "OPERATION", "STATUS", "TRIES", "RESULT", "CREATED"],
        (
            [
                looks.cell(row["delivery_id"]),
                looks.cell(row["rule_id"]),
                looks.cell(row["what"]),
                looks.cell(row["operation_id"]),
                looks.cell(row["status"]),
                looks.cell(row["num_tries"]),
                looks.words(row["error"] or row["response_status"] or ""),
                looks.cell(looks.ago(row["created_at"])),
            ]
            for row in page.rows
        ),
        narrow=["DELIVERY", "EVENT", "STATUS", "RESULT"],
        elastic="RESULT",
    )


def retry(session: Session, delivery: DeliveryId) -> None:
    """Send a delivery again at once.

    Example: trainops notifications retry 12
    """
    _say(session, session.api.post(f"{DELIVERIES}/{delivery}/retry"))


def _say(session: Session, delivery: "Delivery") -> None:
    if session.out.is_data:
        session.out.data(delivery)
    else:
        session.out.text(f"Delivery {delivery['delivery_id']} is waiting to be sent.")
