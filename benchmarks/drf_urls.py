"""The addresses of the product, and those of a ModelViewSet over the same operations."""

from typing import Any

from django.urls import path
from rest_framework import serializers
from rest_framework.pagination import CursorPagination, LimitOffsetPagination
from rest_framework.viewsets import ModelViewSet

from apps.operations.api.rows import ROW_FIELDS
from apps.operations.models import Operation
from trainops.urls import urlpatterns as of_product

COMPUTED = {"monitor"}  # from the config: no column


class OperationModelSerializer(serializers.ModelSerializer[Operation]):
    owner = serializers.CharField(source="owner.username")
    tags = serializers.SlugRelatedField(many=True, read_only=True, slug_field="name")

    class Meta:
        model = Operation
        fields = (*(each for each in ROW_FIELDS if each not in COMPUTED), "owner", "tags")


class Newest(CursorPagination):
    page_size = 50
    ordering = ("-created_at", "-id")


class Counted(LimitOffsetPagination):
    default_limit = 50


class Operations(ModelViewSet[Operation]):
    queryset = Operation.objects.select_related("owner").prefetch_related("tags")
    serializer_class = OperationModelSerializer
    pagination_class: Any = Newest


class CountedOperations(Operations):
    pagination_class = Counted


urlpatterns = [
    path("drf/", Operations.as_view({"get": "list"})),
    path("drf-counted/", CountedOperations.as_view({"get": "list"})),
    *of_product,
]
