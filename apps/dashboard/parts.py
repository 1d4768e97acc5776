"""The operation page, in parts that are drawn alike at first and whenever they change."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import TypedDict

from django.conf import settings
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.safestring import SafeString

from apps.checkpoints.models import Checkpoint
from apps.checkpoints.signatures import SignatureChecks
from apps.checkpoints.storage import Stored
from apps.dashboard import checkpoint_files, figures, formatting, state_explanations, tracebacks
from apps.dashboard.rows import digest, heartbeat_at
from apps.operations import attention
from apps.operations.attempts import recovery, selfchecks
from apps.operations.ids import is_subtask
from apps.operations.lifecycle import RESUMABLE, Reason, State, reason_label
from apps.operations.models import Attempt, Event, Operation, Subtask
from apps.operations.points import metric_queries
from apps.operations.requests import access, forking, services, uncertainty
from apps.operations.requests.access import Person
from trainops.kind import KINDS, Panel
from trainops.recipes import users_of_model
from trainops.runtime import monitors

MAX_EVENTS = 100
LAST_LINES = 15
CHECKPOINT_COLOURS = {
    "periodic": "blue",
    "final": "green",
    "cancellation": "orange",
    "failure": "red",
    "shutdown": "azure",
}


@dataclass
class Subject:
    """An operation with what its page shows of it; each part is asked for once, if at all."""

    operation: Operation
    user: Person
    _contexts: dict[str, Mapping[str, object] | None] = field(default_factory=dict)

    @cached_property
    def attempts(self) -> list[Attempt]:
        return list(self.operation.attempts.all())

    @cached_property
    def checkpoints(self) -> list[Checkpoint]:
        """Newest first, without their states where those are long."""
        rows = Checkpoint.objects.filter(operation_id=self.operation.pk)
        return list(rows.newest_first())

    @cached_property
    def events(self) -> list[Event]:
        return list(self.operation.events.all()[: MAX_EVENTS + 1])

    @cached_property
    def bests(self) -> list[figures.BestPoint]:
        return figures.bests(self.operation)

    @cached_property
    def newest(self) -> Checkpoint | None:
        usable = (c for c in self.checkpoints if c.health != Checkpoint.Health.CORRUPTED)
        return next(usable, None)

    @cached_property
    def actions(self) -> list[str]:
        self.operation.has_checkpoint = self.newest is not None  # type: ignore[attr-defined]
        return access.allowed_actions(self.operation, self.user)

    @cached_property
    def subtask(self) -> Subtask | None:
        """The row of the subtask; None if the operation is none."""
        if not is_subtask(self.operation.pk):
            return None
        mine = Subtask.objects.filter(pk=self.operation.pk)
        return mine.select_related("parent", "operation").first()

    @property
    def shown_checkpoints(self) -> list[Checkpoint]:
        """The result's checkpoint where it completed, else the best and the newest one."""
        return [c for c in self.checkpoints if c.type == Checkpoint.Type.FINAL] or [
            c for c in self.checkpoints if c.is_best or c.best_of or c == self.newest
        ]

    def panels(self, *places: str) -> list[Panel]:
        """The panels that the kind has at these places of the page."""
        kind = KINDS[self.operation.kind]
        return [panel for panel in kind.panels if panel.place in places]

    def context(self, panel: Panel) -> Mapping[str, object] | None:
        """What a panel shows; asked for once."""
        if panel.name not in self._contexts:
            self._contexts[panel.name] = panel.context(self)
        return self._contexts[panel.name]

    @cached_property
    def shows_result(self) -> bool:
        """Whether a panel shows the result, so that nothing else repeats it."""
        return any(each.shows_result for each in self._shown_panels)

    @property
    def shows_figures(self) -> bool:
        """Whether a panel shows what the operation came to, so that the page omits its metrics."""
        return any(each.shows_figures for each in self._shown_panels)

    @property
    def _shown_panels(self) -> list[Panel]:
        panels = KINDS[self.operation.kind].panels
        return [each for each in panels if self.context(each) is not None]

    @property
    def may_change(self) -> bool:
        return self.subtask is None and access.may_change(self.operation.owner_id, self.user)

    def position(self, checkpoint: Checkpoint) -> str:
        return services.position(checkpoint, self.operation)


def draw(subject: Subject, *, is_whole: bool = True) -> dict[str, tuple[SafeString, str]]:
    """Return each part's HTML and its digest, by name; the panels of the kind included.

    is_whole: draw also the parts that do not change while a running operation makes progress.
    """
    names = CONTEXTS if is_whole else PROGRESSING
    drawn = {name: _rendered(subject, name) for name in names}
    drawn |= {panel.name: _drawn(subject, panel) for panel in subject.panels("page", "below")}
    return {name: (html, digest(html)) for name, html in drawn.items()}


def _rendered(subject: Subject, name: str) -> SafeString:
    context = {"operation": subject.operation, "subject": subject, **CONTEXTS[name](subject)}
    return render_to_string(f"dashboard/operation/{name}.html", context)


def _drawn(subject: Subject, panel: Panel) -> SafeString:
    context = subject.context(panel)
    if context is None:
        return SafeString()
    return render_to_string(panel.template, {"operation": subject.operation, **context})


def _header(subject: Subject) -> Mapping[str, object]:
    may_submit = access.may_create(subject.user) and subject.subtask is None
    operation = subject.operation
    is_model = may_submit and operation.state == State.COMPLETED
    users = users_of_model(operation.kind, operation.recipe) if is_model else []
    return {
        "actions": subject.actions,
        "resume_style": "" if operation.reason == Reason.JOB_ERROR else "btn-primary",
        "may_submit": may_submit,
        "may_edit": may_submit and access.may_change(operation.owner_id, subject.user),
        "model_users": [(each, KINDS[each.kind].label.lower()) for each in users],
        "may_fork": subject.newest is not None,
        "may_extend": bool(forking.length_of(operation)[0]) and operation.is_finished,
        "may_warm_start": KINDS[operation.kind].has_weights,
        "tags": list(subject.operation.tags.all()),
        "kind": KINDS[subject.operation.kind].label,
        "subtask": subject.subtask,
    }


def _explanation(subject: Subject) -> Mapping[str, object]:
    is_bad = subject.operation.self_check in attention.BAD_CHECKS
    handback_note = subject.attempts[0].handback_note if subject.attempts else ""
    may_change = access.may_change(subject.operation.owner_id, subject.user)
    return {
        "explanation": state_explanations.of(
            subject.operation, subject.newest, handback_note, may_change=may_change
        ),
        "self_check": selfchecks.newest(subject.attempts) if is_bad else None,
        "uncertain": _uncertain(subject),
        "concerns": [
            (each, _note_of(subject, each), attention.NEXT_STEPS[each] if may_change else "")
            for each in attention.split(subject.operation.concerns)
        ],
        "may_acknowledge": subject.may_change
        and attention.is_needed(attention.row_of(subject.operation)),
    }


def _uncertain(subject: Subject) -> str:
    """Return why no resume is certain to be exact; empty where none is to come."""
    if subject.operation.state == State.COMPLETED:
        return ""
    return uncertainty.listed(uncertainty.said_by(subject.attempts))


def _note_of(subject: Subject, reason: str) -> str:
    """Return what the event of a concern says; that of an old one is not read."""
    events = (event for event in subject.events if event.what == reason)
    note = next((event.note for event in events), "")
    return note.rstrip(".")


def _progress(subject: Subject) -> Mapping[str, object]:
    operation = subject.operation
    _, colour = formatting.badge(operation.state, operation.stop_requested)
    is_running = operation.state == State.RUNNING
    return {
        "colour": colour,
        "percent": operation.percent,
        "eta": operation.eta_seconds,
        "rate": formatting.rate(operation.steps_per_second, operation.unit) if is_running else "",
        "heartbeat_at": heartbeat_at(operation.lease_expires_at) if is_running else None,
        "marks": _marks(subject),
        "legend": sorted({(c.type, CHECKPOINT_COLOURS[c.type]) for c in subject.checkpoints}),
    }


class Mark(TypedDict):
    """A checkpoint on the line of progress."""

    x: str  # per cent of the line
    colour: str
    checkpoint: Checkpoint
    position: str
    label: str  # empty: it would touch the one before


def _marks(subject: Subject) -> list[Mark]:
    """Return where on the line each checkpoint stands; labels that would touch are left out."""
    total = subject.operation.total_steps or max((c.step for c in subject.checkpoints), default=1)
    marks: list[Mark] = []
    labelled = -100.0
    for checkpoint in reversed(subject.checkpoints):
        # 1..99: a circle at the very end would be cut in half
        x = 1 + 98 * min(1.0, checkpoint.step / max(1, total))
        is_labelled = x - labelled >= 5
        labelled = x if is_labelled else labelled
        marks.append(
            {
                "x": f"{x:.2f}%",
                "colour": CHECKPOINT_COLOURS[checkpoint.type],
                "checkpoint": checkpoint,
                "position": subject.position(checkpoint),
                "label": subject.position(checkpoint).rpartition(" ")[2] if is_labelled else "",
            }
        )
    return marks


def _stats(subject: Subject) -> Mapping[str, object]:
    is_measured = subject.subtask is None and not subject.shows_figures
    found = figures.of(subject.operation, subject.attempts, subject.bests)
    return {
        **found,
        "is_measured": is_measured,
        "throughput": formatting.rate(found["steps_per_second"], subject.operation.unit or "step"),
        "num_checkpoints": len(subject.checkpoints),
        "checkpoint_bytes": sum(each.counted_size_bytes for each in subject.checkpoints),
    }


def _error(subject: Subject) -> Mapping[str, object]:
    operation = subject.operation
    if operation.state != State.FAILED:  # after a resume the mark of the crash goes away
        return {"error": None}
    error = operation.error or {"code": operation.reason, "message": ""}
    own = tracebacks.own_part(error.get("traceback") or "")
    # Twice as many: `log_tail` counts a line that continues in the next chunk as two.
    log = metric_queries.log_tail(operation.pk, num_lines=2 * LAST_LINES, attempt=operation.attempt)
    text = "".join(chunk["text"] for chunk in log.chunks)
    return {
        "error": error,
        "own_trace": own,
        "is_short": tracebacks.is_short(own),
        "meaning": reason_label(operation.reason),
        "last_lines": "\n".join(text.splitlines()[-LAST_LINES:]),
    }


def _attempts(subject: Subject) -> Mapping[str, object]:
    return {"attempts": figures.lines(subject.attempts)}


def _checkpoints(subject: Subject) -> Mapping[str, object]:
    checks = SignatureChecks()
    return {
        "checkpoints": [
            {
                "row": checkpoint,
                "colour": CHECKPOINT_COLOURS[checkpoint.type],
                "position": subject.position(checkpoint),
                "signature": checks.of(checkpoint),
            }
            for checkpoint in subject.checkpoints
        ],
        "total_bytes": sum(c.counted_size_bytes for c in subject.checkpoints),
        "unrecorded": _unrecorded(subject.operation),
        "may_resume": "resume" in subject.actions,
        "may_delete": subject.may_change and subject.operation.is_finished,
    }


def _unrecorded(operation: Operation) -> list[Stored]:
    """Return what could be recovered; not looked for where that takes a network's time."""
    if operation.state not in RESUMABLE or settings.CHECKPOINT_BUCKET is not None:
        return []
    try:
        return recovery.unrecorded(operation)
    except OSError:
        return []


def _events(subject: Subject) -> Mapping[str, object]:
    return {"events": subject.events[:MAX_EVENTS], "has_more": len(subject.events) > MAX_EVENTS}


def _files(subject: Subject) -> Mapping[str, object]:
    kind, config = subject.operation.kind, subject.operation.config
    metrics = config.get("monitor", ""), monitors.further(config)
    return {
        "panels": [_drawn(subject, panel) for panel in subject.panels("files")],
        "sources": [
            checkpoint_files.source(each, subject.position(each), kind, *metrics)
            for each in subject.shown_checkpoints
        ],
        "result": None if subject.shows_result else subject.operation.result,
    }


def _receipt(subject: Subject) -> Mapping[str, object]:
    resumed = [a for a in subject.attempts if a.receipt and a.receipt.get("checkpoint")]
    return {"receipts": [(attempt, _request(subject, attempt)) for attempt in resumed]}


def _resumed(subject: Subject) -> Mapping[str, object]:
    """Return what the newest attempt restored, if it is a resume."""
    newest = next(iter(subject.attempts), None)
    if newest is None or not newest.receipt or not newest.receipt.get("checkpoint"):
        return {"resumed": None}
    directory = newest.receipt["checkpoint"]
    found = (c for c in subject.checkpoints if c.artifacts_path.endswith(f"/{directory}"))
    checkpoint, request = next(found, None), _request(subject, newest)
    unit = subject.operation.unit or "step"
    return {
        "resumed": newest,
        "position": subject.position(checkpoint) if checkpoint else f"{unit} {newest.from_step:,}",
        "actor": request.actor if request else "",
        "steps_lost": figures.steps_again(subject.attempts[:2]),
    }


def _request(subject: Subject, attempt: Attempt) -> Event | None:
    """Return who asked for an attempt, and why: the newest RESUMING before it started."""
    asked = (e for e in subject.events if e.what == State.RESUMING and e.at <= attempt.started_at)
    return next(asked, None)


CONTEXTS = {
    "header": _header,
    "resumed": _resumed,
    "explanation": _explanation,
    "progress": _progress,
    "stats": _stats,
    "error": _error,
    "attempts": _attempts,
    "checkpoints": _checkpoints,
    "events": _events,
    "files": _files,
    "receipt": _receipt,
}
PROGRESSING = ("explanation", "progress", "stats", "attempts")  # and panels of the kind


def is_settled(operation: Operation) -> bool:
    """Whether nothing will change by itself any more, so that the page may stop asking."""
    return operation.is_finished and (
        operation.finished_at is None
        or timezone.now() - operation.finished_at > timedelta(seconds=5)
    )
