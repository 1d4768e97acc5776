"""A checkpoint of agents as a file of version 3, with its digest in one zip."""

from django.http import FileResponse, Http404, HttpRequest
from django.http.response import HttpResponseBase

from apps.dashboard.agents import KIND
from apps.dashboard.answers import refused
from apps.dashboard.gate import needs
from apps.operations import artifacts, exports
from trainops.errors import Refusal


@needs()
def export(request: HttpRequest, operation_id: str, checkpoint_id: str) -> HttpResponseBase:
    try:
        checkpoint = artifacts.source(operation_id, checkpoint_id)
    except Refusal as refusal:
        raise Http404(str(refusal)) from None
    if checkpoint is None or checkpoint.operation.kind != KIND:
        raise Http404("There is no such file.")
    try:
        person = request.user.get_username()
        exported = exports.export(checkpoint, person=person, is_packed=True)
    except Refusal as refusal:
        return refused(request, refusal)
    return FileResponse(exported.file, as_attachment=True, filename=exported.name)
