"""A federated operation's last state and best model, as files of version 2.0."""

from django.http import FileResponse, Http404, HttpRequest

from apps.dashboard.gate import needs
from apps.datasets.storage import workspace
from apps.operations import artifacts, exchange
from trainops.errors import Refusal

KIND, MODELS = "federated", ("last", "best")


@needs()
def export(request: HttpRequest, operation_id: str, which: str) -> FileResponse:
    """The files of the checkpoint that is asked for, so that both are of one; else the newest."""
    chosen = request.GET.get("checkpoint", "")
    with workspace() as directory:
        path = directory / f"{which}.pt"
        try:
            found = artifacts.source(operation_id, chosen) if chosen else None
            checkpoint = found or artifacts.newest(operation_id)
            if checkpoint is None or which not in MODELS or checkpoint.operation.kind != KIND:
                raise Http404("There is no such file.")
            exchange.export(checkpoint, path, which=which)
        except Refusal as refusal:
            raise Http404(str(refusal)) from None
        file = path.open("rb")  # stays readable when its name is gone
    return FileResponse(file, as_attachment=True, filename=f"{operation_id}-{path.name}")
