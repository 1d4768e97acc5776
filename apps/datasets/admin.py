"""Datasets and uploads in the admin: what was received, and the buttons that delete it."""

from typing import Any, cast

from django.contrib import admin
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.template.defaultfilters import filesizeformat
from unfold.enums import ActionVariant

from apps.datasets import services
from apps.datasets.models import Dataset, Upload
from apps.datasets.uploads import services as uploads
from trainops.admin_base import ReadOnlyAdmin, button, column, id_in
from trainops.http.roles import Role, has_role

COLOURS = {"receiving": "info", "received": "warning", "finished": "success"}


@admin.register(Dataset)
class DatasetAdmin(ReadOnlyAdmin):
    list_display = ("called", "format", "num_rows", "num_columns", "size", "owner", "created_at")
    list_filter = ("format", "created_at")
    list_select_related = ("owner",)
    search_fields = ("id", "name", "filename")
    ordering = ("-created_at", "-id")
    actions_detail = ("remove",)
    fieldsets = (
        (None, {"fields": (("name", "owner"), ("id", "created_at"))}),
        ("Table", {"fields": (("num_rows", "num_columns", "size"), "columns")}),
        (
            "Source",
            {"fields": (("filename", "format"), ("encoding", "delimiter", "source_bytes"))},
        ),
        ("Content", {"fields": ("digest", "source_digest")}),
    )

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).defer("columns", "preview")

    @column(description="Dataset", header=True, ordering="name")
    def called(self, dataset: Dataset) -> tuple[str, str]:
        return dataset.name, dataset.pk

    @column(description="Size", ordering="size_bytes")
    def size(self, dataset: Dataset) -> str:
        return filesizeformat(dataset.size_bytes)

    @button(
        "Delete",
        may="remove",
        icon="delete",
        question="Delete this dataset?",
        consequence="Operations that use it can then be neither resumed nor repeated.",
        submit="Delete the dataset",
        variant=ActionVariant.DANGER,
    )
    def remove(self, request: HttpRequest, form: object, object_id: str) -> HttpResponseBase:
        def removed() -> str:
            services.delete(dataset_id=id_in(object_id), actor=cast(User, request.user))
            return f"Deleted {id_in(object_id)}."

        return self.carried_out(request, self.address_of_list(), removed)

    def has_remove_permission(self, request: HttpRequest, object_id: object = None) -> bool:
        dataset = Dataset.objects.filter(pk=id_in(object_id)).only("owner_id").first()
        if dataset is None:
            return False
        is_own = dataset.owner_id is not None and dataset.owner_id == request.user.pk
        return has_role(request.user, Role.OPERATOR if is_own else Role.ADMIN)


@admin.register(Upload)
class UploadAdmin(ReadOnlyAdmin):
    list_display = ("called", "state", "received", "size", "owner", "created_at", "changed_at")
    list_filter = ("created_at", "changed_at")
    list_select_related = ("owner",)
    search_fields = ("id", "filename", "name", "owner__username")
    ordering = ("-created_at", "-id")
    actions_detail = ("remove",)
    fieldsets = (
        (None, {"fields": (("filename", "owner"), ("id", "state"), ("created_at", "changed_at"))}),
        ("Content", {"fields": (("received", "size"), "digest", "fingerprint")}),
        ("Dataset", {"fields": (("name", "dataset"), "options")}),
    )

    @column(description="Upload", header=True, ordering="filename")
    def called(self, upload: Upload) -> tuple[str, str]:
        return upload.filename, upload.pk

    @column(description="State", label=COLOURS)
    def state(self, upload: Upload) -> str:
        if upload.dataset_id:
            return "finished"
        is_whole = uploads.offset_of(upload) == upload.size_bytes
        return "received" if is_whole else "receiving"

    @column(description="Received")
    def received(self, upload: Upload) -> str:
        return filesizeformat(uploads.offset_of(upload))

    @column(description="Size", ordering="size_bytes")
    def size(self, upload: Upload) -> str:
        return filesizeformat(upload.size_bytes)

    @button(
        "Delete",
        may="remove",
        icon="delete",
        question="Delete this upload?",
        consequence="The received part of the file is deleted. The dataset of a finished upload "
        "stays.",
        submit="Delete the upload",
        variant=ActionVariant.DANGER,
    )
    def remove(self, request: HttpRequest, form: object, object_id: str) -> HttpResponseBase:
        def removed() -> str:
            upload = Upload.objects.select_related("owner").get(pk=id_in(object_id))
            uploads.discard(upload.pk, owner=upload.owner)
            return f"Deleted {upload.pk}."

        return self.carried_out(request, self.address_of_list(), removed)

    def has_remove_permission(self, request: HttpRequest, object_id: object = None) -> bool:
        upload = Upload.objects.filter(pk=id_in(object_id)).only("owner_id").first()
        if upload is None:
            return False
        is_own = upload.owner_id == request.user.pk
        return has_role(request.user, Role.OPERATOR if is_own else Role.ADMIN)
