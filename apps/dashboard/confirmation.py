"""What a button would do, said before: one sentence with its consequence and its cost."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from django.db.models import Q
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.checkpoints import services as checkpoints
from apps.checkpoints.models import Checkpoint
from apps.dashboard.words import duration, moment, plural, size
from apps.operations.attempts import recovery
from apps.operations.lifecycle import WAITING, State
from apps.operations.models import Operation
from apps.operations.requests import access, services

VERBS = {"cancel": "Cancel", "kill": "Kill", "resume": "Resume", "delete": "Delete"}
MAX_OPERATIONS = 500


@dataclass(frozen=True, slots=True)
class Confirmation:
    action: str
    title: str
    text: SafeString | str
    ids: Sequence[str]
    skipped: Sequence[tuple[str, str]] = ()  # (name, why)
    choices: Sequence[tuple[Checkpoint, str]] = field(default=())  # to resume from, newest first
    chosen: str = ""

    @property
    def verb(self) -> str:
        return VERBS[self.action]

    @property
    def is_dangerous(self) -> bool:
        return self.action != "resume"


def of(action: str, operations: Sequence[Operation], user: Any, chosen: str = "") -> Confirmation:
    """Return what to ask before `action` on these operations; those it cannot touch are named."""
    able, skipped = [], []
    for operation in operations:
        why_not = refusal(action, operation, user)
        if why_not:
            skipped.append((operation.name, why_not))
        else:
            able.append(operation)
    ids = [operation.pk for operation in able]
    if len(operations) == 1 and able:
        return _one(action, able[0], chosen)
    verb, total = VERBS[action], len(operations)
    title = f"{verb} {len(able)} of {plural(total, 'operation')}?"
    text = MANY[action](able) if able else "None of them can be, for these reasons:"
    return Confirmation(action, title, text, ids, skipped)


def refusal(action: str, operation: Operation, user: Any) -> str:
    """Return why `user` cannot do this to the operation now; "" if they can."""
    if action in access.allowed_actions(operation, user):
        return ""
    if not access.may_change(operation.owner_id, user):
        owner = operation.owner.get_username() if operation.owner else "nobody any more"
        return f"it belongs to {owner}"
    if action == "resume" and operation.state in ("FAILED", "CANCELLED"):
        return "it has no checkpoint to resume from"
    if operation.stop_requested:
        return "it is already being stopped"
    if action == "delete":
        return f"it is {operation.state.lower()}: cancel it first"
    return f"it is {operation.state.lower()}"


def _one(action: str, operation: Operation, chosen: str) -> Confirmation:
    healthy = checkpoints.to_resume_from(operation.pk)
    text = ONE[action](operation, healthy)
    confirmation = Confirmation(
        action, f"{VERBS[action]} “{operation.name}”?", text, [operation.pk]
    )
    if action != "resume":
        return confirmation
    choices = [(each, services.position(each, operation)) for each in healthy]
    return Confirmation(
        action, confirmation.title, text, confirmation.ids, choices=choices, chosen=chosen
    )


def _cancel(operation: Operation, healthy: Sequence[Checkpoint]) -> SafeString | str:
    if operation.state in WAITING:
        saved = f"; {services.position(healthy[0], operation)} stays saved" if healthy else ""
        return f"No worker has it, so it stops at once{saved}."
    limit = operation.config.get("limits", {}).get("cancel_timeout_seconds", 60)
    return (
        "It saves a checkpoint at its next safe point, then stops; it can be resumed later. "
        f"If it does not get there within {duration(limit)}, it is killed."
    )


def _kill(operation: Operation, healthy: Sequence[Checkpoint]) -> SafeString | str:
    if not healthy:
        return "It ends now, without saving. There is no checkpoint yet: all its work is lost."
    lost = max(0, operation.step - healthy[0].step)
    return format_html(
        "It ends now, without saving: {} since {} (saved {}) are lost.",
        plural(lost, operation.unit or "step"),
        services.position(healthy[0], operation),
        moment(healthy[0].created_at),
    )


def _resume(operation: Operation, healthy: Sequence[Checkpoint]) -> SafeString | str:
    again = max(0, operation.step - healthy[0].step)
    run_again = f"; {plural(again, operation.unit or 'step')} after it run again" if again else ""
    place = services.position(healthy[0], operation)
    said = f"It continues at {place}{run_again}. Its bytes are verified first."
    return " ".join([said, *_passed_over(operation, healthy[0]), *_unrecorded(operation)])


def _passed_over(operation: Operation, start: Checkpoint) -> Iterator[str]:
    """Say which newer checkpoints are known to be damaged."""
    newer = takewhile(
        lambda each: each != start, Checkpoint.objects.filter(operation=operation).newest_first()
    )
    for each in newer:
        place = services.position(each, operation)
        yield f"The newer checkpoint at {place} is {each.health}: {each.damage.findings}."


def _unrecorded(operation: Operation) -> Iterator[str]:
    """Say which newer checkpoints the storage holds, and the database does not know."""
    try:
        found = recovery.unrecorded(operation)
    except OSError as error:
        yield f"The storage cannot be used now: {error}."
        return
    if found:
        count = plural(len(found), "newer checkpoint")
        yield (
            f"The storage holds {count}, up to step {found[0].step:,}, without a database row: "
            "recover them first, in the Checkpoints tab."
        )


def _delete(operation: Operation, healthy: Sequence[Checkpoint]) -> SafeString | str:
    return _freed([operation])


def _freed(operations: Sequence[Operation]) -> str:
    clients = Operation.objects.filter(part__server__in=operations)
    rows = Checkpoint.objects.filter(Q(operation__in=operations) | Q(operation__in=clients))
    freed = size(checkpoints.total_bytes(rows))
    loses = any(operation.state != State.COMPLETED for operation in operations)
    what = "its" if len(operations) == 1 else "their"
    count = clients.count()
    also = f"{plural(count, 'client')}, " if count else ""
    resumable = "; it can no longer be resumed" if loses and len(operations) == 1 else ""
    return (
        f"Frees {freed}: {what} {also}{plural(rows.count(), 'checkpoint')}, curves, events and log "
        f"are gone for good{resumable}."
    )


def _many_cancelled(able: Sequence[Operation]) -> str:
    """Count those that save first, those that saved before, and those that cannot be resumed."""
    waiting = [each for each in able if each.state in WAITING or each.is_silent]  # type: ignore[attr-defined]
    saved = [each for each in waiting if each.has_checkpoint]  # type: ignore[attr-defined]
    running, unsaved = len(able) - len(waiting), len(waiting) - len(saved)
    said = []
    if running:
        verb = "saves" if running == 1 else "save"
        said.append(
            f"{running} {verb} a checkpoint at the next safe point, then stop and can be resumed"
        )
    if saved:
        verb = "keeps its" if len(saved) == 1 else "keep their"
        said.append(f"{len(saved)} {verb} last checkpoint and can be resumed")
    if unsaved:
        verb = "has no checkpoint and has" if unsaved == 1 else "have no checkpoint and have"
        said.append(f"{unsaved} {verb} to be submitted again")
    return "; ".join(said) + "."


def _many_resumed(able: Sequence[Operation]) -> str:
    return "Each continues from its newest healthy checkpoint; the bytes are verified first."


def _many_killed(able: Sequence[Operation]) -> str:
    """Say what is lost, and how many lose all."""
    unsaved = sum(not each.has_checkpoint for each in able)  # type: ignore[attr-defined]
    said = "They end now, without saving: the work since their last checkpoints is lost."
    if unsaved:
        verb = "has" if unsaved == 1 else "have"
        said += f" {unsaved} {verb} no checkpoint: all work of {unsaved} is lost."
    return said


ONE: dict[str, Callable[[Operation, Sequence[Checkpoint]], SafeString | str]] = {
    "cancel": _cancel,
    "kill": _kill,
    "resume": _resume,
    "delete": _delete,
}
MANY: dict[str, Callable[[Sequence[Operation]], str]] = {
    "cancel": _many_cancelled,
    "kill": _many_killed,
    "resume": _many_resumed,
    "delete": _freed,
}
