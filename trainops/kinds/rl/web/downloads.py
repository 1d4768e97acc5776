"""What an operation's page fetches: agents as a file of version 3, and recorded episodes."""

from django.http import FileResponse, Http404, HttpRequest, JsonResponse
from django.http.response import HttpResponseBase

from apps.dashboard.parts import Subject
from apps.dashboard.permissions import needs
from apps.dashboard.responses import refused
from apps.operations.errors import OperationNotFound
from apps.operations.files import artifacts, exports
from apps.operations.requests import services
from trainops.errors import DomainError
from trainops.kinds.rl.web import agents
from trainops.kinds.rl.web.agents import KIND


@needs()
def export(request: HttpRequest, operation_id: str, checkpoint_id: str) -> HttpResponseBase:
    """A checkpoint of agents as a file of version 3, with its digest in one zip."""
    try:
        checkpoint = artifacts.source(operation_id, checkpoint_id)
    except DomainError as refusal:
        raise Http404(str(refusal)) from None
    if checkpoint is None or checkpoint.operation.kind != KIND:
        raise Http404("This file does not exist.")
    try:
        person = request.user.get_username()
        exported = exports.export(checkpoint, person=person, is_packed=True)
    except DomainError as refusal:
        return refused(request, refusal)
    return FileResponse(exported.file, as_attachment=True, filename=exported.name)


@needs()
def recording(request: HttpRequest, operation_id: str, step: int) -> JsonResponse:
    """Return the recorded episode of the evaluation at a step, to be played back."""
    try:
        subject = Subject(services.get(operation_id), request.user)
    except OperationNotFound as refusal:
        raise Http404(str(refusal)) from None
    is_one = subject.operation.kind == KIND
    found = agents.recording(subject.operation, subject.checkpoints, step) if is_one else None
    if found is None:
        raise Http404("This recording does not exist.")
    return JsonResponse(found)
