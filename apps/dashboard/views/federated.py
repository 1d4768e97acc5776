"""A federated operation's last state and best model, as files of version 2.0."""

from django.http import FileResponse, Http404, HttpRequest

from apps.dashboard.gate import needs
from apps.datasets.storage import workspace
from apps.operations import artifacts, exchange
from trainops.errors import Refusal

MODELS = ("last", "best")


@needs()
def export(request: HttpRequest, operation_id: str, which: str) -> FileResponse:
    checkpoint = artifacts.newest(operation_id)
    if checkpoint is None or which not in MODELS or checkpoint.operation.kind != "federated":
        raise Http404("There is no such file.")
    with workspace() as directory:
        path = directory / f"{which}.pt"
        try:
            exchange.export(checkpoint, path, which=which)
        except Refusal as refusal:
            raise Http404(str(refusal)) from None
        file = path.open("rb")  # stays readable when its name is gone
    return FileResponse(file, as_attachment=True, filename=f"{operation_id}-{path.name}")
