"""Why an operation is where it is, and what comes next: every state is explained."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Q
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.checkpoints.models import Checkpoint
from apps.dashboard.rows import heartbeat_at
from apps.dashboard.words import duration, moment
from apps.operations import services
from apps.operations.lifecycle import WAITING, Reason, State
from apps.operations.models import Operation
from apps.workers.models import Worker

QUIET_SECONDS = 120  # without a step for so long, the page mentions it
LIVE = ("AVAILABLE", "BUSY")


@dataclass(frozen=True, slots=True)
class Standing:
    """One sentence. `tone` is a colour of Tabler."""

    text: SafeString | str
    tone: str = "secondary"


def of(operation: Operation, newest: Checkpoint | None) -> Standing | None:
    """Return why the operation is in its state; None where the rest of the page says it."""
    explain = EXPLAIN[State(operation.state)]
    return explain(operation, newest)


def _waiting(operation: Operation, newest: Checkpoint | None) -> Standing:
    if operation.not_before and operation.not_before > timezone.now():
        at = f"{timezone.localtime(operation.not_before):%H:%M:%S}"
        left = moment(operation.not_before, "until")
        return Standing(
            format_html("It restarts by itself at {} ({}){}.", at, left, _from(operation, newest)),
            "orange",
        )
    tone, reason = _what_keeps_it(operation)
    since = moment(operation.queued_at, "since")
    return Standing(format_html("{} It has waited for {}.", reason, since), tone)


def _what_keeps_it(operation: Operation) -> tuple[str, str]:
    """Return (tone, sentence) about the workers that could take it."""
    known: Any = Worker.objects.with_status()
    workers = [worker for worker in known if worker.status in LIVE]
    serving = [w for w in workers if operation.kind in w.kinds or not w.kinds]
    if not workers:
        return "orange", "No worker is running: start one, and it takes this at once."
    if not serving:
        return "orange", f"No running worker serves the kind {operation.kind}."
    free = sum(max(0, w.slots - w.num_running) for w in serving)
    ahead = _num_ahead(operation)
    if free > ahead:
        return "secondary", "A worker takes it in a moment."
    slots = sum(w.slots for w in serving)
    place = "one stands before it" if ahead == 1 else f"{ahead} stand before it"
    busy = "the only slot is" if slots == 1 else f"all {slots} slots are"
    return "secondary", f"It waits for a free worker: {busy} busy" + (
        f", {place}." if ahead else "; it is the next."
    )


def _num_ahead(operation: Operation) -> int:
    sooner = Q(priority__gt=operation.priority) | Q(
        priority=operation.priority, queued_at__lt=operation.queued_at
    )
    others = Operation.objects.due().filter(kind=operation.kind).exclude(pk=operation.pk)
    return others.filter(sooner).count()


def _running(operation: Operation, newest: Checkpoint | None) -> Standing | None:
    lease = operation.lease_expires_at
    if lease and lease < timezone.now():
        heard = moment(heartbeat_at(lease))
        return Standing(
            format_html(
                "Its worker {} was last heard of {}. The next sweep hands it to another{}.",
                operation.worker_id, heard, _from(operation, newest),
            ),
            "orange",
        )  # fmt: skip
    if operation.stop_requested:
        return Standing(_stopping(operation), "orange")
    if operation.progressed_at is None and not operation.step:
        return Standing("Its process starts: imports, data, restoring. Steps follow in seconds.")
    return _quiet(operation)


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


def _way_on(operation: Operation, newest: Checkpoint | None) -> SafeString | str:
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
    State.COMPLETED: lambda _operation, _newest: None,
}
