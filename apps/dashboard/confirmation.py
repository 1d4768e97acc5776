"""What a button would do, said before: one sentence with its consequence and its cost."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from django.db.models import Q
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.checkpoints import services as checkpoints
from apps.checkpoints.models import Checkpoint
from apps.dashboard.formatting import duration, moment, plural, size
from apps.operations.attempts import resume_preview
from apps.operations.lifecycle import WAITING, State
from apps.operations.models import Operation
from apps.operations.requests import bulk, changed_code, services
from apps.operations.requests.access import Person

VERBS = {
    "cancel": "Cancel",
    "kill": "Kill",
    "resume": "Resume",
    "delete": "Delete",
    "archive": "Archive",
    "acknowledge": "Acknowledge",
    "favourite": "Mark",
    "edit": "Edit",
}
MOST_AT_A_CLICK = 10  # of more, their number is entered before anything is stopped or deleted
CHANGED = "files of its recipe were changed on this server"
REQUIRED = "its config requires an exact resume: otherwise it fails and says what differs"
ANY_INEXACT = "where files of the recipe were changed, or the config requires an exact resume"
MAX_COMPARED = 20  # newest checkpoints whose manifests are read for a question
MAX_SKIPPED = 10  # named one by one; of more, the numbers by reason


@dataclass(frozen=True, slots=True)
class Confirmation:
    action: str
    title: str
    text: SafeString | str
    ids: Sequence[str]
    skipped: Sequence[tuple[str, str]] = ()  # (name, why)
    choices: Sequence[tuple[Checkpoint, str]] = field(default=())  # to resume from, newest first
    chosen: str = ""
    inexact: str = ""  # when a resume that is not exact is refused, unless that is accepted
    must_accept: bool = False  # each choice is one of those

    @property
    def verb(self) -> str:
        return VERBS[self.action]

    @property
    def dismissal(self) -> str:
        """The button that does nothing."""
        if not self.ids:
            return "Close"
        return "Don't cancel" if self.action == "cancel" else "Cancel"

    @property
    def is_dangerous(self) -> bool:
        return self.action not in ("resume", "edit", *bulk.EDITS)

    @property
    def number_is_entered(self) -> bool:
        """Whether a person enters how many there are before the button does it."""
        return self.is_dangerous and len(self.ids) > MOST_AT_A_CLICK


def of(
    action: str,
    operations: Sequence[Operation],
    user: Person,
    chosen: str = "",
    num_matching: int = 0,
) -> Confirmation:
    """Return what to ask before `action` on these operations; those it cannot touch are named.

    `num_matching`: how many match the query of which these are the first.
    """
    able, skipped = [], []
    for operation in operations:
        why_not = bulk.refusal(action, operation, user)
        if why_not:
            skipped.append((operation.name, why_not))
        else:
            able.append(operation)
    ids = [operation.pk for operation in able]
    if len(operations) == 1 and able:
        return _one(action, able[0], chosen)
    verb, total = VERBS[action], len(operations)
    title = f"{verb} {len(able)} of {plural(total, 'operation')}?"
    text = MANY[action](able) if able else "Not possible for any of them:"
    if num_matching > total:
        text = f"{text} Only the first {total:,} of {num_matching:,} that match are affected."
    inexact = ANY_INEXACT if action == "resume" and able else ""
    return Confirmation(action, title, text, ids, _by_reason(skipped), inexact=inexact)


def _by_reason(skipped: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
    if len(skipped) <= MAX_SKIPPED:
        return skipped
    numbers = Counter(why for _, why in skipped)
    return [(plural(number, "operation"), why) for why, number in numbers.most_common()]


def _one(action: str, operation: Operation, chosen: str) -> Confirmation:
    healthy = checkpoints.to_resume_from(operation.pk)
    text = ONE[action](operation, healthy)
    confirmation = Confirmation(
        action, f"{VERBS[action]} “{operation.name}”?", text, [operation.pk]
    )
    if action != "resume":
        return confirmation
    choices = [(each, services.position(each, operation)) for each in healthy]
    compared = healthy[:MAX_COMPARED]
    is_changed = changed_code.are_changed(operation, compared)
    is_required = operation.config.get("exact") == "required"
    inexact = [*([CHANGED] if any(is_changed) else []), *([REQUIRED] if is_required else [])]
    return Confirmation(
        action, confirmation.title, text, confirmation.ids, choices=choices, chosen=chosen,
        inexact="; ".join(inexact), must_accept=all(is_changed) and compared == healthy,
    )  # fmt: skip


def _cancel(operation: Operation, healthy: Sequence[Checkpoint]) -> SafeString | str:
    if operation.state in WAITING:
        saved = (
            f"; the checkpoint at {services.position(healthy[0], operation)} is kept"
            if healthy
            else ""
        )
        return f"No worker is running it, so it stops immediately{saved}."
    limit = operation.config.get("limits", {}).get("cancel_timeout_seconds", 60)
    return (
        "It will save a checkpoint and stop; you can resume it later. "
        f"If it has not stopped after {duration(limit)}, it will be killed."
    )


def _kill(operation: Operation, healthy: Sequence[Checkpoint]) -> SafeString | str:
    if not healthy:
        return "It stops immediately, without saving. It has no checkpoint yet: all work is lost."
    lost = max(0, operation.step - healthy[0].step)
    return format_html(
        "It stops immediately, without saving. You lose {} since {} (saved {}).",
        plural(lost, operation.unit or "step"),
        services.position(healthy[0], operation),
        moment(healthy[0].created_at),
    )


def _resume(operation: Operation, healthy: Sequence[Checkpoint]) -> SafeString | str:
    return " ".join(resume_preview.notes(operation, healthy[0]))


def _archived(_: object, healthy: Sequence[Checkpoint] = ()) -> str:
    return "Lists omit archived operations; the query archived:yes finds them. Nothing is deleted."


def _acknowledged(_: object, healthy: Sequence[Checkpoint] = ()) -> str:
    return "An acknowledged operation needs no attention until it is resumed or has a new reason."


def _marked(_: object, healthy: Sequence[Checkpoint] = ()) -> str:
    return "Favourites have a star; the query is:favourite finds them."


def _edited(_: object, healthy: Sequence[Checkpoint] = ()) -> str:
    return "Change tags and project; what is left empty stays as it is."


def _delete(operation: Operation, healthy: Sequence[Checkpoint]) -> SafeString | str:
    return _freed([operation])


def _freed(operations: Sequence[Operation]) -> str:
    subtasks = Operation.objects.filter(subtask__parent__in=operations)
    rows = Checkpoint.objects.filter(Q(operation__in=operations) | Q(operation__in=subtasks))
    freed = size(checkpoints.total_bytes(rows))
    loses = any(operation.state != State.COMPLETED for operation in operations)
    what = "its" if len(operations) == 1 else "their"
    count = subtasks.count()
    also = f"{plural(count, 'subtask')}, " if count else ""
    resumable = "; it can no longer be resumed" if loses and len(operations) == 1 else ""
    return (
        f"Frees {freed}. Permanently deletes {what} {also}{plural(rows.count(), 'checkpoint')}, "
        f"curves, events and log{resumable}."
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
        verb = "has" if unsaved == 1 else "have"
        said.append(f"{unsaved} {verb} no checkpoint and must be submitted again")
    return "; ".join(said) + "."


def _many_resumed(able: Sequence[Operation]) -> str:
    return "Each continues from its latest healthy checkpoint, which is verified first."


def _many_killed(able: Sequence[Operation]) -> str:
    """Say what is lost, and how many lose all."""
    unsaved = sum(not each.has_checkpoint for each in able)  # type: ignore[attr-defined]
    said = "They stop immediately, without saving: the work since their last checkpoints is lost."
    if unsaved:
        verb = "has no checkpoint and loses" if unsaved == 1 else "have no checkpoint and lose"
        said += f" {unsaved} {verb} all work."
    return said


ONE: dict[str, Callable[[Operation, Sequence[Checkpoint]], SafeString | str]] = {
    "cancel": _cancel,
    "kill": _kill,
    "resume": _resume,
    "delete": _delete,
    "archive": _archived,
    "acknowledge": _acknowledged,
    "favourite": _marked,
    "edit": _edited,
}
MANY: dict[str, Callable[[Sequence[Operation]], str]] = {
    "cancel": _many_cancelled,
    "kill": _many_killed,
    "resume": _many_resumed,
    "delete": _freed,
    "archive": _archived,
    "acknowledge": _acknowledged,
    "favourite": _marked,
    "edit": _edited,
}
