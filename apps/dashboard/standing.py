"""Why an operation is where it is, and what comes next: every state is explained."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.checkpoints.models import Checkpoint
from apps.dashboard import words
from apps.dashboard.rows import heartbeat_at
from apps.dashboard.words import duration, moment
from apps.operations.ids import is_part
from apps.operations.lifecycle import WAITING, Reason, State
from apps.operations.models import Operation
from apps.operations.requests import services
from apps.operations.scheduling import outlook
from apps.operations.scheduling.waiting import Wait

QUIET_SECONDS = 120  # without a step for so long, the page mentions it


@dataclass(frozen=True, slots=True)
class Standing:
    """One sentence. `tone` is a colour of Tabler."""

    text: SafeString | str
    tone: str = "secondary"


def of(operation: Operation, newest: Checkpoint | None) -> Standing | None:
    """Return why the operation is in its state; None where the rest of the page says it."""
    explain = EXPLAIN[State(operation.state)]
    return explain(operation, newest)


def _waiting(operation: Operation, newest: Checkpoint | None) -> Standing | None:
    wait = outlook.of_operation(operation)
    if wait is None:
        return None
    if wait.code is Wait.PAUSED:
        return Standing(_paused(operation, newest), "orange")
    since = moment(operation.queued_at, "since")
    if wait.code not in words.OBSTACLES:
        return Standing(format_html("{} It has waited for {}.", wait.message, since))
    look = '{} It has waited for {}. <a href="/workers/">Look at the workers</a>'
    return Standing(format_html(look, wait.message, since), "orange")


def _paused(operation: Operation, newest: Checkpoint | None) -> SafeString:
    at = timezone.localtime(operation.not_before)
    left = moment(operation.not_before, "until")
    why = Reason(operation.reason).label
    because = f", because {why}" if why else ""
    return format_html(
        "It restarts by itself at {} ({}){}{}.",
        f"{at:%H:%M:%S}", left, _from(operation, newest), because,
    )  # fmt: skip


def _running(operation: Operation, newest: Checkpoint | None) -> Standing | None:
    lease = operation.lease_expires_at
    if lease and lease < timezone.now():
        return Standing(_silent(operation, newest), "orange")
    if operation.stop_requested:
        return Standing(_stopping(operation), "orange")
    if operation.progressed_at is None and not operation.step:
        return Standing("Its process starts: imports, data, restoring. Steps follow in seconds.")
    return _quiet(operation)


def _silent(operation: Operation, newest: Checkpoint | None) -> SafeString:
    heard = moment(heartbeat_at(operation.lease_expires_at))
    if any(worker.is_reachable for worker in outlook.workers()):
        what = format_html(
            "The next sweep puts it back into the queue{}.", _from(operation, newest)
        )
    else:
        what = format_html(
            "No worker is running: start one to continue this operation{}. "
            '<a href="/workers/">Look at the workers</a>',
            _from(operation, newest),
        )
    return format_html("Its worker {} was last seen {}. {}", operation.worker_id, heard, what)


def _stopping(operation: Operation) -> SafeString:
    asked = moment(operation.stop_requested_at)
    by = operation.stop_requested_by
    if operation.stop_requested == Operation.Stop.KILL:
        return format_html("{} asked to kill it {}; its process is being ended.", by, asked)
    limit = operation.config.get("limits", {}).get("cancel_timeout_seconds", 60)
    return format_html(
        "{} asked to cancel it {}. It saves a checkpoint at its next safe point, then stops; "
        "after {} it is killed and its last checkpoint stands.",
        by, asked, duration(limit),
    )  # fmt: skip


def _quiet(operation: Operation) -> Standing | None:
    moved = operation.progressed_at
    if moved is None or timezone.now() - moved < timedelta(seconds=QUIET_SECONDS):
        return None
    limit = operation.config.get("limits", {}).get("stall_timeout_seconds", 1800)
    return Standing(
        format_html(
            "No {} for {}; after {} without one it is ended as stalled.",
            operation.unit or "step", moment(moved, "since"), duration(limit),
        ),
        "orange",
    )  # fmt: skip


def _failed(operation: Operation, newest: Checkpoint | None) -> Standing:
    why = Reason(operation.reason).label or "it failed"
    return Standing(format_html("It failed: {}. {}", why, _way_on(operation, newest)), "red")


def _cancelled(operation: Operation, newest: Checkpoint | None) -> Standing:
    by = Reason(operation.reason).label or "it was cancelled"
    who = operation.stop_requested_by
    if who and by.startswith("a person "):
        by = f"{who} {by.removeprefix('a person ')}"
    return Standing(format_html("Stopped: {}. {}", by, _way_on(operation, newest)), "orange")


def _completed(operation: Operation) -> Standing | None:
    if operation.reason != Reason.PRIVACY_BUDGET:
        return None
    target = operation.config["privacy"]["target_epsilon"]
    return Standing(
        format_html(
            "It ended at {}, before all its rounds: the next step would have exceeded its privacy "
            "budget of epsilon {}.",
            operation.place, f"{target:g}",
        ),
        "orange",
    )  # fmt: skip


def _way_on(operation: Operation, newest: Checkpoint | None) -> SafeString | str:
    if is_part(operation.pk):
        return "" if operation.reason == Reason.DROPPED else "It goes on when the whole does."
    if newest is None:
        return "Nothing was saved, so there is nothing to resume: submit it again."
    return format_html(
        "A resume continues at {}, saved {}.",
        services.position(newest, operation), moment(newest.created_at),
    )  # fmt: skip


def _from(operation: Operation, newest: Checkpoint | None) -> str:
    if newest is None:
        return ", from the start"
    return f", from {services.position(newest, operation)}"


EXPLAIN: dict[State, Callable[[Operation, Checkpoint | None], Standing | None]] = {
    **dict.fromkeys(WAITING, _waiting),
    State.RUNNING: _running,
    State.FAILED: _failed,
    State.CANCELLED: _cancelled,
    State.COMPLETED: lambda operation, _newest: _completed(operation),
}
