"""A federated operation's last state and best model, as files of version 2.0."""

from django.http import FileResponse, Http404, HttpRequest
from django.http.response import HttpResponseBase

from apps.dashboard.permissions import needs
from apps.dashboard.responses import refused
from apps.operations.files import artifacts, exports
from trainops.errors import DomainError

KIND, MODELS = "federated", ("last", "best")


@needs()
def export(request: HttpRequest, operation_id: str, which: str) -> HttpResponseBase:
    """The files of the checkpoint that is asked for, so that both are of one; else the newest."""
    chosen = request.GET.get("checkpoint", "")
    try:
        found = artifacts.source(operation_id, chosen) if chosen else None
        checkpoint = found or artifacts.newest(operation_id)
        if checkpoint is None or which not in MODELS or checkpoint.operation.kind != KIND:
            raise Http404("This file does not exist.")
        person = request.user.get_username()
        exported = exports.export(checkpoint, person=person, which=which)
    except DomainError as refusal:
        return refused(request, refusal)
    return FileResponse(exported.file, as_attachment=True, filename=f"{operation_id}-{which}.pt")
