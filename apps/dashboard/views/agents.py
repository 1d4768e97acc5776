"""A checkpoint of agents as a file of version 3, with its digest in one zip."""

from django.http import FileResponse, Http404, HttpRequest

from apps.dashboard.agents import KIND
from apps.dashboard.gate import needs
from apps.datasets.storage import workspace
from apps.operations import artifacts, exchange
from trainops.errors import Refusal


@needs()
def export(request: HttpRequest, operation_id: str, checkpoint_id: str) -> FileResponse:
    try:
        checkpoint = artifacts.source(operation_id, checkpoint_id)
    except Refusal as refusal:
        raise Http404(str(refusal)) from None
    if checkpoint is None or checkpoint.operation.kind != KIND:
        raise Http404("There is no such file.")
    with workspace() as directory:
        path, packed = directory / f"{checkpoint.pk}.ckpt", directory / "packed.zip"
        try:
            name = exchange.pack(path, exchange.export(checkpoint, path), packed)
        except Refusal as refusal:
            raise Http404(str(refusal)) from None
        file = packed.open("rb")  # stays readable when its name is gone
    return FileResponse(file, as_attachment=True, filename=name)
