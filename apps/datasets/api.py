"""Endpoints of datasets: upload, register, verify, list, show, delete."""

from typing import cast

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.datasets import services
from apps.datasets.directories import registration
from apps.datasets.models import Dataset
from apps.datasets.serializers import (
    DatasetSerializer,
    DatasetSummarySerializer,
    DirectorySerializer,
    PreviewSerializer,
    SampleSerializer,
    UploadSerializer,
    VerificationSerializer,
)
from apps.datasets.tables.options import TableOptions
from apps.datasets.upload_view import FileFormView
from trainops.errors import DomainError
from trainops.http.numbers import whole_number
from trainops.http.pagination import NewestFirstCounted
from trainops.http.roles import Role, has_role
from trainops.http.serializers import MessageSerializer

LIMIT_SCHEMA = {"type": "integer", "minimum": 1, "maximum": 50, "default": 50}


class DatasetsView(FileFormView, GenericAPIView[Dataset]):
    queryset = Dataset.objects.all()
    serializer_class = DatasetSummarySerializer
    pagination_class = NewestFirstCounted
    filter_backends = ()
    ordering_fields = ("name", "num_rows", "size_bytes")

    @extend_schema(
        operation_id="datasets_list",
        responses=DatasetSummarySerializer(many=True),
        parameters=[
            OpenApiParameter("owner", OpenApiTypes.STR, description="Username."),
            OpenApiParameter("search", OpenApiTypes.STR, description="Part of the name."),
        ],
    )
    def get(self, request: Request) -> Response:
        """List datasets, latest first."""
        page = self.paginate_queryset(self._filtered(request))
        return self.get_paginated_response(self.get_serializer(page, many=True).data)

    @extend_schema(
        operation_id="datasets_upload",
        request={"multipart/form-data": UploadSerializer},
        responses={201: DatasetSerializer, 200: DatasetSerializer},
        description="Upload a table or images. Returns 201 for a new dataset, 200 if it exists "
        "already.",
    )
    def post(self, request: Request) -> Response:
        serializer = UploadSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        given = serializer.validated_data
        dataset, is_new = services.add_or_find_table(
            given["file"],
            filename=given["file"].name,
            name=given["name"],
            owner=cast(User, request.user),
            options=TableOptions(
                encoding=given["encoding"],
                delimiter=given["delimiter"],
                columns=given.get("columns") or {},
            ),
        )
        return Response(
            DatasetSerializer(dataset).data,
            status=201 if is_new else 200,
            headers={"Location": reverse("api-dataset", args=[dataset.id])},
        )

    def _filtered(self, request: Request) -> QuerySet[Dataset]:
        rows = Dataset.objects.select_related("owner").defer("columns", "preview", "layout")
        allowed = ("owner", "search", "cursor", "limit", "ordering", "count")
        if unknown := [name for name in request.query_params if name not in allowed]:
            raise ValidationError(
                {name[:60]: f"unknown filter; allowed: {', '.join(allowed)}" for name in unknown}
            )
        if owner := request.query_params.get("owner"):
            rows = rows.filter(owner__username=owner)
        if search := request.query_params.get("search"):
            rows = rows.filter(name__icontains=search)
        return rows


class DirectoriesView(APIView):
    @extend_schema(
        operation_id="datasets_add_directory",
        request=DirectorySerializer,
        responses={201: DatasetSerializer, 200: DatasetSerializer},
        description="Register a directory below one of the allowed roots, or a prefix below one of "
        "the allowed prefixes of buckets; nothing is copied. "
        "Answers when all files are read. Returns 201 for a new dataset, 200 if it exists already.",
    )
    def post(self, request: Request) -> Response:
        serializer = DirectorySerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        given = serializer.validated_data
        dataset, is_new = registration.add_or_find(
            given["path"], name=given["name"], owner=cast(User, request.user)
        )
        return Response(
            DatasetSerializer(dataset).data,
            status=201 if is_new else 200,
            headers={"Location": reverse("api-dataset", args=[dataset.id])},
        )


class VerificationView(APIView):
    @extend_schema(
        operation_id="datasets_verify",
        request=SampleSerializer,
        responses=VerificationSerializer,
        description="Compare names and sizes of all files of a registered directory or prefix with "
        "its manifest, and the content of all files or of a sample. Answers when the files are "
        "read.",
    )
    def post(self, request: Request, dataset_id: str) -> Response:
        serializer = SampleSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        user = cast(User, request.user)
        found = registration.verify(dataset_id, serializer.to_sample(), actor=user)
        return Response(VerificationSerializer(found).data)


class DatasetView(APIView):
    @extend_schema(operation_id="datasets_get", responses=DatasetSerializer)
    def get(self, request: Request, dataset_id: str) -> Response:
        """Return a dataset with its columns."""
        return Response(DatasetSerializer(services.get(dataset_id)).data)

    @extend_schema(operation_id="datasets_delete", responses={200: MessageSerializer})
    def delete(self, request: Request, dataset_id: str) -> Response:
        """Delete a dataset that no unfinished operation uses. Owners and admins only."""
        dataset = services.get(dataset_id)
        if dataset.owner_id != request.user.pk and not has_role(request.user, Role.ADMIN):
            message = "Only the owner or an admin can delete this dataset."
            raise DomainError("PERMISSION_DENIED", message, {"dataset_id": dataset.id}, status=403)
        services.delete(dataset_id=dataset.id, actor=cast(User, request.user))
        freed = (
            f"Dataset {dataset.id} ({dataset.name}) was deleted; {dataset.size_bytes} bytes freed."
        )
        return Response({"message": freed})


class DatasetPreviewView(APIView):
    @extend_schema(
        operation_id="datasets_preview",
        responses=PreviewSerializer,
        parameters=[OpenApiParameter("limit", LIMIT_SCHEMA, description="Number of rows.")],
    )
    def get(self, request: Request, dataset_id: str) -> Response:
        """Return the first rows as read at the upload; images as small PNG data URIs."""
        limit = request.query_params.get("limit", "50")
        if not (num_rows := whole_number(limit, 1, 50)):
            raise ValidationError({"limit": f"{limit[:60]!r} is not a whole number from 1 to 50"})
        dataset = services.get(dataset_id)
        return Response(
            {
                "columns": dataset.column_names,
                "rows": dataset.preview[:num_rows],
                "num_rows": dataset.num_rows,
            }
        )
