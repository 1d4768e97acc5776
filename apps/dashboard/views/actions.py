"""Buttons: ask first (a dialog, or a page of its own without scripts), then do, by POST only."""

from collections.abc import Callable, Mapping
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST

from apps.checkpoints import services as checkpoints
from apps.checkpoints import sharing
from apps.checkpoints.models import Checkpoint
from apps.dashboard import confirmation
from apps.dashboard.answers import refuse, safe, say
from apps.dashboard.gate import is_fetch, needs
from apps.dashboard.words import plural, size
from apps.operations import verification
from apps.operations.attempts import recovery
from apps.operations.models import Operation
from apps.operations.requests import access, services
from trainops.errors import Refusal
from trainops.http.roles import Role


@needs(Role.OPERATOR)
def confirm(request: HttpRequest, action: str) -> HttpResponse:
    """What `action` on the operations `id` would do."""
    if action not in confirmation.VERBS:
        raise Http404
    asked = confirmation.of(
        action,
        _operations(request.GET.getlist("id")),
        request.user,
        request.GET.get("checkpoint", ""),
    )
    template = "part" if is_fetch(request) else "page"
    context = {"confirmation": asked, "next": safe(request, request.GET.get("next", "/"))}
    return render(request, f"dashboard/confirm/{template}.html", context)


@require_POST
@needs(Role.OPERATOR)
def act(request: HttpRequest, action: str) -> HttpResponse:
    """Do it to each; what the rules refuse is told, the rest is done."""
    if action not in DO:
        raise Http404
    done: list[str] = []
    refused: list[str] = []
    operations = _operations(request.POST.getlist("id"))
    for operation in operations:
        try:
            access.require(operation, request.user, action)
            done.append(DO[action](operation, request))
        except Refusal as refusal:
            refused.append(f"{operation.name}: {refusal.message}")
    return _tell(request, action, operations, done, refused)


def _tell(
    request: HttpRequest,
    action: str,
    operations: list[Operation],
    done: list[str],
    refused: list[str],
) -> HttpResponse:
    to = request.POST.get("next") or "/"
    if not done:
        why = refused or ["There is no such operation any more."]
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
        return say(request, "That checkpoint is gone already.", level="error", status=404)
    to = request.POST.get("next") or found.operation.get_absolute_url()
    try:
        access.require(found.operation, request.user, f"{action} checkpoints of")
        message, level = ON_CHECKPOINT[action](found, request)
    except Refusal as refusal:
        return refuse(request, refusal, to=to)
    return say(request, message, level=level, to=to)


@require_POST
@needs(Role.OPERATOR)
def recover(request: HttpRequest, operation_id: str) -> HttpResponse:
    """Record the checkpoints that the storage holds and the database does not know."""
    try:
        operation = services.get(operation_id)
        access.require(operation, request.user, "recover checkpoints of")
        done = recovery.recover(operation_id=operation_id, actor=_actor(request))
    except Refusal as refusal:
        return refuse(request, refusal, to=f"/operations/{operation_id}/")
    level = "warning" if done.problems else "success"
    return say(request, f"{done.message}.", level=level, to=operation.get_absolute_url())


@needs(Role.OPERATOR)
def confirm_checkpoint(request: HttpRequest, checkpoint_id: str) -> HttpResponse:
    """What deleting one checkpoint would do."""
    found = Checkpoint.objects.select_related("operation").filter(pk=checkpoint_id).first()
    if found is None:
        raise Http404("That checkpoint is gone already.")
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


def _operations(ids: list[str]) -> list[Operation]:
    rows = Operation.objects.select_related("owner").filter(
        pk__in=ids[: confirmation.MAX_OPERATIONS]
    )
    return list(access.annotated(rows))


def _cancel(operation: Operation, request: HttpRequest) -> str:
    after = services.cancel(operation_id=operation.pk, actor=_actor(request))
    if after.is_finished:
        return f"{operation.name} is cancelled."
    return f"{operation.name} saves a checkpoint at its next safe point, then stops."


def _kill(operation: Operation, request: HttpRequest) -> str:
    after = services.kill(operation_id=operation.pk, actor=_actor(request))
    return f"{operation.name} is {'killed' if after.is_finished else 'being killed'}."


def _resume(operation: Operation, request: HttpRequest) -> str:
    resumption = services.resume(
        operation_id=operation.pk,
        actor=_actor(request),
        checkpoint_id=request.POST.get("checkpoint", ""),
    )
    return f"{resumption.message}."


def _delete(operation: Operation, request: HttpRequest) -> str:
    freed = services.delete(operation_id=operation.pk, actor=_actor(request))
    return f"{operation.name} is deleted; {size(freed.freed_bytes)} are free."


def _pin(checkpoint: Checkpoint, request: HttpRequest) -> tuple[str, str]:
    checkpoints.pin(checkpoint.pk, pinned=True)
    return "Pinned: it is kept until you unpin it.", "success"


def _unpin(checkpoint: Checkpoint, request: HttpRequest) -> tuple[str, str]:
    checkpoints.pin(checkpoint.pk, pinned=False)
    return "Unpinned: retention may let it go.", "success"


def _verify(checkpoint: Checkpoint, request: HttpRequest) -> tuple[str, str]:
    found = verification.verify(checkpoint, person=request.user.get_username())
    if found.problem:
        return f"Not as it was saved: {found.message}", "error"
    level = {"ok": "success", "warning": "warning", "failed": "error"}[found.level]
    return f"Verified: {plural(len(checkpoint.manifest), 'file')}. {found.message}", level


def _delete_checkpoint(checkpoint: Checkpoint, request: HttpRequest) -> tuple[str, str]:
    done = services.delete_checkpoints(
        operation_id=checkpoint.operation_id, actor=_actor(request), checkpoint_id=checkpoint.pk
    )
    return f"The checkpoint is deleted; {size(done.freed.freed_bytes)} are free.", "success"


def _actor(request: HttpRequest) -> Any:
    return request.user


DO: Mapping[str, Callable[[Operation, HttpRequest], str]] = {
    "cancel": _cancel,
    "kill": _kill,
    "resume": _resume,
    "delete": _delete,
}
DONE: Mapping[str, Callable[[int], str]] = {
    "cancel": lambda n: f"{plural(n, 'operation')} are being cancelled.",
    "kill": lambda n: f"{plural(n, 'operation')} are being killed.",
    "resume": lambda n: f"{plural(n, 'operation')} are being resumed.",
    "delete": lambda n: f"{plural(n, 'operation')} are deleted.",
}
ON_CHECKPOINT: Mapping[str, Callable[[Checkpoint, HttpRequest], tuple[str, str]]] = {
    "pin": _pin,
    "unpin": _unpin,
    "verify": _verify,
    "delete": _delete_checkpoint,
}
