"""Datasets: list, upload, one, verify, delete."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST

from apps.dashboard.formatting import plural, size
from apps.dashboard.permissions import needs, user_of
from apps.dashboard.responses import refuse, say
from apps.datasets import services
from apps.datasets.directories import registration
from apps.datasets.errors import DatasetError
from apps.datasets.models import Dataset
from apps.datasets.serializers import SampleSerializer
from apps.datasets.tables.options import LINES
from apps.operations.requests import access
from trainops.datasets.description import DirectoryVerification
from trainops.errors import DomainError
from trainops.http.errors import flatten
from trainops.http.roles import Role

MAX_SHOWN = 200
DEFAULT_SAMPLE = MappingProxyType({"sample": "1000"})
SAMPLE_FIELDS = (
    ("sample", "Number of files", "empty: all"),
    ("fraction", "Or a fraction", "above 0, at most 1"),
    ("seed", "Seed", "empty: a new one"),
)
NPZ, TEXT = "npz", "text"
OF_LAYOUTS = {"image_folders": "image_folders", "parquet": "large_table"}
LIST_FIELDS = (
    "id", "name", "filename", "format", "num_rows", "num_columns", "size_bytes", "source_bytes",
    "created_at", "owner__username",
)  # fmt: skip


@needs()
def datasets(request: HttpRequest) -> HttpResponse:
    return _list(request)


@needs()
def dataset(request: HttpRequest, dataset_id: str) -> HttpResponse:
    return _one(request, dataset_id)


@require_POST
@needs(Role.OPERATOR)
def verify(request: HttpRequest, dataset_id: str) -> HttpResponse:
    """Show what a verification has found, when the files are read."""
    given = {name: text for name, *_ in SAMPLE_FIELDS if (text := request.POST.get(name, ""))}
    serializer = SampleSerializer(data=given)
    if not serializer.is_valid():
        errors = dict(flatten(serializer.errors))
        return _one(request, dataset_id, given=given, errors=errors, status=400)
    try:
        found = registration.verify(dataset_id, serializer.to_sample(), actor=user_of(request))
    except DomainError as refusal:
        return refuse(request, refusal, to=f"/datasets/{dataset_id}/")
    return _one(request, dataset_id, given=given, verification=found)


def _one(
    request: HttpRequest,
    dataset_id: str,
    *,
    given: Mapping[str, str] = DEFAULT_SAMPLE,
    errors: Mapping[str, str] = MappingProxyType({}),
    verification: DirectoryVerification | None = None,
    status: int = 200,
) -> HttpResponse:
    found = Dataset.objects.select_related("owner").filter(pk=dataset_id).first()
    if found is None:
        raise Http404("This dataset does not exist.")
    context = {
        "dataset": found,
        "gallery": gallery(found),
        "recipe": recipe_for(found),
        "may_delete": access.may_change(found.owner_id, request.user),
        "may_create": access.may_create(request.user),
        "sample_fields": [
            SampleField(*field, given.get(field[0], ""), errors.get(field[0], ""))
            for field in SAMPLE_FIELDS
        ],
        "verification": verification,
    }
    return render(request, "dashboard/datasets/one.html", context, status=status)


class SampleField(NamedTuple):
    """A field of the form of a verification."""

    name: str
    label: str
    when_empty: str
    value: str
    error: str


@dataclass(frozen=True, slots=True)
class Picture:
    """An image of a dataset with its mask, if any, and the values of its other columns."""

    image: str
    mask: str | None
    values: list[tuple[str, object]]


def gallery(dataset: Dataset) -> list[Picture]:
    """Return the first images with what is known of each; nothing of a table."""
    if dataset.format != NPZ:
        return []
    names = [column["name"] for column in dataset.columns]
    rows = [dict(zip(names, row, strict=True)) for row in dataset.preview]
    return [
        Picture(
            image=row["image"],
            mask=row.get("mask"),
            values=[(name, row[name]) for name in ("label", "client") if name in row],
        )
        for row in rows
    ]


def recipe_for(dataset: Dataset) -> str:
    """Return the recipe that is offered for a dataset; empty: none fits every such directory."""
    if dataset.layout is not None:
        return OF_LAYOUTS.get(dataset.layout["layout"], "")
    if dataset.format == TEXT:
        return "characters"
    if dataset.format != NPZ:
        return "tabular"
    is_outlined = any(column["name"] == "mask" for column in dataset.columns)
    return "segmentation" if is_outlined else "images"


@require_POST
@needs(Role.OPERATOR)
def upload(request: HttpRequest) -> HttpResponse:
    """Take the file of a form without a script; scripts send parts to the API (uploads.js)."""
    file = request.FILES.get("file")
    name = request.POST.get("name", "")
    try:
        if file is None:
            raise DatasetError({"file": "Choose a CSV, Parquet, NPZ or text file."}, "NO_FILE")
        delimiter = LINES if request.POST.get("is_text") else ""
        added = services.add_table(
            file,
            filename=file.name or "",
            name=name,
            owner=user_of(request),
            delimiter=delimiter,
        )
    except DomainError as refusal:
        errors = refusal.details.get("fields") or {"file": refusal.message}
        return _list(request, errors=errors, name=name, status=refusal.status)
    rows = f"{plural(added.num_rows, 'row')}, {plural(added.num_columns, 'column')}"
    to = f"/datasets/{added.pk}/"
    return say(request, f"Stored “{added.name}”: {rows}.", to=to)


@require_POST
@needs(Role.OPERATOR)
def delete(request: HttpRequest, dataset_id: str) -> HttpResponse:
    to = f"/datasets/{dataset_id}/"
    try:
        found = services.get(dataset_id)
        if not access.may_change(found.owner_id, request.user):
            raise DomainError(
                "PERMISSION_DENIED", "You can delete only your own datasets.", status=403
            )
        gone = services.delete(dataset_id=dataset_id, actor=user_of(request))
    except DomainError as refusal:
        return refuse(request, refusal, to=to)
    message = f"Deleted “{gone.name}”. Freed {size(gone.size_bytes)}."
    return say(request, message, to="/datasets/", leave=True)


def _list(
    request: HttpRequest,
    *,
    errors: Mapping[str, str] | None = None,
    name: str = "",
    status: int = 200,
) -> HttpResponse:
    context = {
        "datasets": Dataset.objects.values(*LIST_FIELDS)[:MAX_SHOWN],
        "errors": errors or {},
        "name": name,
        "may_create": access.may_create(request.user),
    }
    return render(request, "dashboard/datasets/list.html", context, status=status)
