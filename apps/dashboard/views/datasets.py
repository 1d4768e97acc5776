"""Uploaded tables and images: list, upload, one, delete."""

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST

from apps.dashboard.answers import refuse, say
from apps.dashboard.gate import is_fetch, needs
from apps.dashboard.words import plural, size
from apps.datasets import services
from apps.datasets.errors import DatasetError
from apps.datasets.models import Dataset
from apps.operations.requests import access
from trainops.errors import Refusal
from trainops.http.roles import Role

MAX_SHOWN = 200
NPZ = "npz"
LIST_FIELDS = (
    "id", "name", "filename", "format", "num_rows", "num_columns", "size_bytes", "created_at",
    "owner__username",
)  # fmt: skip


@needs()
def datasets(request: HttpRequest) -> HttpResponse:
    return _list(request)


@needs()
def dataset(request: HttpRequest, dataset_id: str) -> HttpResponse:
    found = Dataset.objects.select_related("owner").filter(pk=dataset_id).first()
    if found is None:
        raise Http404("There is no such dataset.")
    context = {
        "dataset": found,
        "gallery": gallery(found),
        "recipe": recipe_for(found),
        "may_delete": access.may_change(found.owner_id, request.user),
        "may_create": access.may_create(request.user),
    }
    return render(request, "dashboard/datasets/one.html", context)


def gallery(dataset: Dataset) -> list[dict[str, Any]]:
    """Return the first images with what is known of each; nothing of a table."""
    if dataset.format != NPZ:
        return []
    names = [column["name"] for column in dataset.columns]
    rows = [dict(zip(names, row, strict=True)) for row in dataset.preview]
    return [
        {
            "image": row["image"],
            "mask": row.get("mask"),
            "told": [(name, row[name]) for name in ("label", "client") if name in row],
        }
        for row in rows
    ]


def recipe_for(dataset: Dataset) -> str:
    """Return the recipe that is offered for a dataset."""
    if dataset.format != NPZ:
        return "tabular"
    is_outlined = any(column["name"] == "mask" for column in dataset.columns)
    return "segmentation" if is_outlined else "images"


@require_POST
@needs(Role.OPERATOR)
def upload(request: HttpRequest) -> HttpResponse:
    """Take a table; a script gets JSON (to choose it at once), a plain form its page."""
    file = request.FILES.get("file")
    name = request.POST.get("name", "")
    try:
        if file is None:
            raise DatasetError({"file": "Choose a CSV, Parquet or NPZ file."}, "NO_FILE")
        added = services.add_table(file, filename=file.name or "", name=name, owner=_user(request))
    except Refusal as refusal:
        errors = refusal.details.get("fields") or {"file": refusal.message}
        if is_fetch(request):
            body = {"level": "error", "message": refusal.message, "fields": errors}
            return JsonResponse(body, status=refusal.status)
        return _list(request, errors=errors, name=name, status=refusal.status)
    if is_fetch(request):
        label = f"{added.name} ({plural(added.num_rows, 'row')})"
        return JsonResponse({"id": added.pk, "label": label})
    rows = f"{plural(added.num_rows, 'row')}, {plural(added.num_columns, 'column')}"
    to = f"/datasets/{added.pk}/"
    return say(request, f"{added.name} is stored: {rows}.", to=to)


@require_POST
@needs(Role.OPERATOR)
def delete(request: HttpRequest, dataset_id: str) -> HttpResponse:
    to = f"/datasets/{dataset_id}/"
    try:
        found = services.get(dataset_id)
        if not access.may_change(found.owner_id, request.user):
            raise Refusal("PERMISSION_DENIED", "You may delete only your own datasets.", status=403)
        gone = services.delete(dataset_id=dataset_id, actor=_user(request))
    except Refusal as refusal:
        return refuse(request, refusal, to=to)
    message = f"{gone.name} is deleted; {size(gone.size_bytes)} are free."
    return say(request, message, to="/datasets/", leave=True)


def _list(
    request: HttpRequest, *, errors: Any = None, name: str = "", status: int = 200
) -> HttpResponse:
    context = {
        "datasets": Dataset.objects.values(*LIST_FIELDS)[:MAX_SHOWN],
        "errors": errors or {},
        "name": name,
        "may_create": access.may_create(request.user),
    }
    return render(request, "dashboard/datasets/list.html", context, status=status)


def _user(request: HttpRequest) -> Any:
    return request.user
