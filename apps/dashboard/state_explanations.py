"""Why an operation is where it is, and what comes next: every state is explained."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.checkpoints.models import Checkpoint
from apps.dashboard import formatting
from apps.dashboard.formatting import duration, moment
from apps.dashboard.rows import heartbeat_at
from apps.operations.ids import is_subtask
from apps.operations.lifecycle import RESUMABLE, WAITING, Reason, State, reason_label
from apps.operations.models import Operation
from apps.operations.requests import services
from apps.operations.scheduling import queue_status
from apps.operations.scheduling.blocking import BlockingReason

FIX = "Fix the recipe and restart the workers"
QUIET_SECONDS = 120  # without a step for so long, the page mentions it


@dataclass(frozen=True, slots=True)
class StateExplanation:
    """One sentence. `tone` is a colour of Tabler."""

    text: SafeString | str
    tone: str = "secondary"


def of(
    operation: Operation,
    newest: Checkpoint | None,
    handback_note: str = "",
    *,
    may_change: bool = True,
) -> StateExplanation | None:
    """Return why the operation is in its state; None where the rest of the page says it.

    handback_note: that of its current attempt.
    may_change: whether the reader may resume it or submit it again; others are not told how.
    """
    lease = operation.lease_expires_at
    is_obeyed = lease is not None and lease > timezone.now() and not operation.stop_requested
    if operation.state == State.RUNNING and handback_note and is_obeyed:
        text = f"Saved at its next safe point, then queued again: {handback_note}."
        return StateExplanation(text, "orange")
    if operation.state in RESUMABLE and not may_change:
        return _ended(operation)
    explain = EXPLAIN[State(operation.state)]
    return explain(operation, newest)


def _waiting(operation: Operation, newest: Checkpoint | None) -> StateExplanation | None:
    wait = queue_status.of_operation(operation)
    if wait is None:
        return None
    if wait.code is BlockingReason.PAUSED:
        return StateExplanation(_paused(operation, newest), "orange")
    since = moment(operation.queued_at, "since")
    queued = format_html(
        "{} Queued for {}.{}", wait.message, since, _handed_back(operation, newest)
    )
    if wait.code not in formatting.OBSTACLES:
        return StateExplanation(queued)
    look = '{} <a href="/workers/">View workers</a>'
    return StateExplanation(format_html(look, queued), "orange")


def _handed_back(operation: Operation, newest: Checkpoint | None) -> str:
    if operation.reason not in (Reason.PREEMPTED, Reason.BUDGET_USED_UP):
        return ""
    why, start = reason_label(operation.reason), _from(operation, newest)
    return f" It was saved and queued again because {why}; it continues{start.removeprefix(',')}."


def _paused(operation: Operation, newest: Checkpoint | None) -> SafeString:
    at = moment(operation.not_before, "at")
    left = moment(operation.not_before, "until")
    why = reason_label(operation.reason)
    because = f" Reason: {why}." if why else ""
    return format_html(
        "Restarts at {} ({}){}.{}",
        at, left, _from(operation, newest), because,
    )  # fmt: skip


def _running(operation: Operation, newest: Checkpoint | None) -> StateExplanation | None:
    lease = operation.lease_expires_at
    if lease and lease < timezone.now():
        return StateExplanation(_silent(operation, newest), "orange")
    if operation.stop_requested:
        return StateExplanation(_stopping(operation), "orange")
    if operation.progressed_at is None and not operation.step:
        return StateExplanation("Starting: importing, loading data, restoring.")
    return _quiet(operation)


def _silent(operation: Operation, newest: Checkpoint | None) -> SafeString:
    heard = moment(heartbeat_at(operation.lease_expires_at))
    if any(worker.is_reachable for worker in queue_status.workers()):
        what = format_html(
            "The next sweep returns the operation to the queue{}.", _from(operation, newest)
        )
    else:
        what = format_html(
            "No worker is running: start one to continue this operation{}. "
            '<a href="/workers/">View workers</a>',
            _from(operation, newest),
        )
    return format_html("Worker {} was last seen {}. {}", operation.worker_id, heard, what)


def _stopping(operation: Operation) -> SafeString:
    asked = moment(operation.stop_requested_at)
    by = operation.stop_requested_by
    if operation.stop_requested == Operation.Stop.KILL:
        return format_html("{} requested a kill {}; the process is being terminated.", by, asked)
    limit = operation.config.get("limits", {}).get("cancel_timeout_seconds", 60)
    return format_html(
        "{} requested a cancel {}. The operation saves a checkpoint at its next safe point, then "
        "stops; after {} it is killed and keeps its last checkpoint.",
        by, asked, duration(limit),
    )  # fmt: skip


def _quiet(operation: Operation) -> StateExplanation | None:
    moved = operation.progressed_at
    if moved is None or timezone.now() - moved < timedelta(seconds=QUIET_SECONDS):
        return None
    limit = operation.config.get("limits", {}).get("stall_timeout_seconds", 1800)
    return StateExplanation(
        format_html(
            "No {} for {}; after {} without one, the attempt is killed as stalled.",
            operation.unit or "step", moment(moved, "since"), duration(limit),
        ),
        "orange",
    )  # fmt: skip


def _ended_early(operation: Operation, newest: Checkpoint | None) -> StateExplanation:
    ended = _ended(operation)
    return StateExplanation(
        format_html("{} {}", ended.text, _way_on(operation, newest)), ended.tone
    )


def _ended(operation: Operation) -> StateExplanation:
    """Return why it failed or was cancelled, without what can be done about it."""
    if operation.state == State.FAILED:
        why = reason_label(operation.reason) or "unknown reason"
        return StateExplanation(f"Failed: {why}.", "red")
    why = reason_label(operation.reason) or "cancelled"
    if who := operation.stop_requested_by:
        why = why.replace("by a user", f"by {who}")
    return StateExplanation(f"{why[:1].upper()}{why[1:]}.", "orange")


def _completed(operation: Operation) -> StateExplanation | None:
    if operation.reason != Reason.PRIVACY_BUDGET:
        return None
    target = operation.config["privacy"]["target_epsilon"]
    return StateExplanation(
        format_html(
            "Ended after {}: the next step would have exceeded the privacy budget of epsilon {}.",
            operation.place, f"{target:g}",
        ),
        "orange",
    )  # fmt: skip


def _way_on(operation: Operation, newest: Checkpoint | None) -> SafeString | str:
    if is_subtask(operation.pk):
        return "" if operation.reason == Reason.DROPPED else "It resumes with its parent operation."
    is_own_error = operation.reason == Reason.JOB_ERROR
    if newest is None:
        if is_own_error:
            return f"No checkpoint was saved. {FIX}, then submit it again."
        return "No checkpoint was saved, so it cannot be resumed: submit it again."
    return format_html(
        "Resuming {}, saved {}.{}",
        _continues(newest, operation), moment(newest.created_at),
        f" It repeats the same steps and fails again at the same one. {FIX} first."
        if is_own_error else "",
    )  # fmt: skip


def _continues(newest: Checkpoint, operation: Operation) -> str:
    if newest.step == 0:
        return "starts from the beginning, with the checkpoint of step 0"
    return f"continues from {services.position(newest, operation)}"


def _from(operation: Operation, newest: Checkpoint | None) -> str:
    if newest is None:
        return ", from the start"
    return f", from {services.position(newest, operation)}"


EXPLAIN: dict[State, Callable[[Operation, Checkpoint | None], StateExplanation | None]] = {
    **dict.fromkeys(WAITING, _waiting),
    State.RUNNING: _running,
    State.FAILED: _ended_early,
    State.CANCELLED: _ended_early,
    State.COMPLETED: lambda operation, _newest: _completed(operation),
}
