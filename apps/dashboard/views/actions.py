"""Buttons: ask first (a dialog, or a page of its own without scripts), then do, by POST only."""

from collections.abc import Callable, Mapping

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST

from apps.checkpoints import services as checkpoints
from apps.checkpoints import sharing
from apps.checkpoints.models import Checkpoint
from apps.dashboard import confirmation
from apps.dashboard.filters import Filters
from apps.dashboard.formatting import plural, size
from apps.dashboard.permissions import is_fetch, needs, user_of
from apps.dashboard.responses import refuse, refused, safe, say
from apps.operations.attempts import recovery
from apps.operations.files import verification
from apps.operations.models import Operation
from apps.operations.requests import access, bulk, deletion, services
from trainops.errors import DomainError
from trainops.http.roles import Role


@needs(Role.OPERATOR)
def confirm(request: HttpRequest, action: str) -> HttpResponse:
    """What `action` on the operations `id` would do."""
    if action not in confirmation.VERBS:
        raise Http404
    ids, num_matching = request.GET.getlist("id"), 0
    if "matching" in request.GET:
        ids, num_matching = _matching(request)
    checkpoint = request.GET.get("checkpoint", "")
    operations = bulk.fetch(ids)
    asked = confirmation.of(action, operations, request.user, checkpoint, num_matching)
    template = "part" if is_fetch(request) else "page"
    context = {"confirmation": asked, "next": safe(request, request.GET.get("next", "/"))}
    return render(request, f"dashboard/confirm/{template}.html", context)


@require_POST
@needs(Role.OPERATOR)
def act(request: HttpRequest, action: str) -> HttpResponse:
    """Do it to each; what is not allowed is reported, the rest is done."""
    if action not in bulk.ACTIONS:
        raise Http404
    operations = bulk.fetch(request.POST.getlist("id"))
    options = bulk.BulkOptions(
        checkpoint_id=request.POST.get("checkpoint", ""),
        accept_inexact=bool(request.POST.get("accept_inexact")),
        note=request.POST.get("note", ""),
        tags=_listed(request.POST.get("tags", "")),
        untags=_listed(request.POST.get("untags", "")),
        project="" if request.POST.get("no_project") else request.POST.get("project") or None,
    )
    outcomes = bulk.carry_out(action, operations, user_of(request), options)
    done = [_said(each) for each in outcomes if not each.is_refused]
    refused = [f"{each.name}: {each.message}" for each in outcomes if each.is_refused]
    return _tell(request, action, operations, done, refused)


def _listed(tags: str) -> list[str]:
    return [tag for each in tags.split(",") if (tag := each.strip())]


def _said(outcome: bulk.BulkResult) -> str:
    freed = f" Freed {size(outcome.freed_bytes)}." if outcome.freed_bytes else ""
    return f"{outcome.message}{freed}"


def _tell(
    request: HttpRequest,
    action: str,
    operations: list[Operation],
    done: list[str],
    refused: list[str],
) -> HttpResponse:
    to = request.POST.get("next") or "/"
    if not done:
        why = refused or ["This operation no longer exists."]
        return say(request, why[0], level="error", details=why[1:], to=to, status=409)
    message = done[0] if len(done) == 1 else DONE[action](len(done))
    level = "warning" if refused else "success"
    if action == "delete" and any(each.get_absolute_url() in to for each in operations):
        return say(request, message, level=level, details=refused, to="/", leave=True)
    return say(request, message, level=level, details=refused, to=to)


@require_POST
@needs(Role.OPERATOR)
def on_checkpoint(request: HttpRequest, checkpoint_id: str, action: str) -> HttpResponse:
    """Pin, unpin, verify or delete one checkpoint."""
    if action not in ON_CHECKPOINT:
        raise Http404
    checkpoint = Checkpoint.objects.select_related("operation__owner").filter(pk=checkpoint_id)
    found = checkpoint.first()
    if found is None:
        return say(request, "This checkpoint no longer exists.", level="error", status=404)
    to = request.POST.get("next") or found.operation.get_absolute_url()
    try:
        access.require(found.operation, request.user, f"{action} checkpoints of")
        message, level = ON_CHECKPOINT[action](found, request)
    except DomainError as refusal:
        return refuse(request, refusal, to=to)
    return say(request, message, level=level, to=to)


@require_POST
@needs(Role.OPERATOR)
def recover(request: HttpRequest, operation_id: str) -> HttpResponse:
    """Record the checkpoints that the storage holds and the database does not know."""
    try:
        operation = services.get(operation_id)
        access.require(operation, request.user, "recover checkpoints of")
        done = recovery.recover(operation_id=operation_id, actor=user_of(request))
    except DomainError as refusal:
        return refuse(request, refusal, to=f"/operations/{operation_id}/")
    level = "warning" if done.problems else "success"
    return say(request, f"{done.message}.", level=level, to=operation.get_absolute_url())


@needs(Role.OPERATOR)
def confirm_checkpoint(request: HttpRequest, checkpoint_id: str) -> HttpResponse:
    """What deleting one checkpoint would do."""
    found = Checkpoint.objects.select_related("operation__owner").filter(pk=checkpoint_id).first()
    if found is None:
        raise Http404("This checkpoint no longer exists.")
    try:
        access.require(found.operation, request.user, "delete checkpoints of")
    except DomainError as refusal:
        return refused(request, refusal)
    others = checkpoints.to_resume_from(found.operation_id)
    context = {
        "checkpoint": found,
        "position": services.position(found, found.operation),
        "freed_bytes": sharing.freed_bytes(Checkpoint.objects.filter(pk=checkpoint_id)),
        "is_last": [other.pk for other in others] == [found.pk],
        "next": safe(request, request.GET.get("next") or found.operation.get_absolute_url()),
    }
    template = "checkpoint_part" if is_fetch(request) else "checkpoint_page"
    return render(request, f"dashboard/confirm/{template}.html", context)


def _matching(request: HttpRequest) -> tuple[list[str], int]:
    """Return the first operations of the list with the filters of the request, and their number."""
    found = Filters.read(request.GET, request.user).apply(request.user)
    ids = found.values_list("pk", flat=True)[: bulk.MAX_OPERATIONS]
    return list(ids), found.count()


def _pin(checkpoint: Checkpoint, request: HttpRequest) -> tuple[str, str]:
    checkpoints.pin(checkpoint.pk, pinned=True)
    return "Pinned: the checkpoint is kept until you unpin it.", "success"


def _unpin(checkpoint: Checkpoint, request: HttpRequest) -> tuple[str, str]:
    checkpoints.pin(checkpoint.pk, pinned=False)
    return "Unpinned: retention may delete the checkpoint.", "success"


def _verify(checkpoint: Checkpoint, request: HttpRequest) -> tuple[str, str]:
    found = verification.verify(checkpoint, person=request.user.get_username())
    if found.problem:
        return f"Damaged: {found.message}", "error"
    level = {"ok": "success", "warning": "warning", "failed": "error"}[found.level]
    return f"Verified: {plural(len(checkpoint.manifest), 'file')}. {found.message}", level


def _delete_checkpoint(checkpoint: Checkpoint, request: HttpRequest) -> tuple[str, str]:
    done = deletion.delete_checkpoints(
        operation_id=checkpoint.operation_id, actor=user_of(request), checkpoint_id=checkpoint.pk
    )
    return f"Deleted the checkpoint. Freed {size(done.freed.freed_bytes)}.", "success"


DONE: Mapping[str, Callable[[int], str]] = {
    "cancel": lambda n: f"Cancelling {plural(n, 'operation')}.",
    "kill": lambda n: f"Killing {plural(n, 'operation')}.",
    "resume": lambda n: f"Resuming {plural(n, 'operation')}.",
    "delete": lambda n: f"Deleted {plural(n, 'operation')}.",
    "archive": lambda n: f"Archived {plural(n, 'operation')}.",
    "acknowledge": lambda n: f"Acknowledged {plural(n, 'operation')}.",
    "favourite": lambda n: f"Marked {plural(n, 'operation')}.",
    "edit": lambda n: f"Edited {plural(n, 'operation')}.",
}
ON_CHECKPOINT: Mapping[str, Callable[[Checkpoint, HttpRequest], tuple[str, str]]] = {
    "pin": _pin,
    "unpin": _unpin,
    "verify": _verify,
    "delete": _delete_checkpoint,
}
