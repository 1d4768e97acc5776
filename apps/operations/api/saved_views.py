"""Endpoints for saved views of the list."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.operations.models import SavedView
from apps.operations.search import views
from apps.operations.search.columns import FORM, MAX_COLUMNS
from trainops.http.asking import body_of, person
from trainops.http.permissions import IsViewer
from trainops.http.serializers import MessageSerializer, StrictSerializer


class SavedViewRequestSerializer(StrictSerializer):
    """A view; one of the same name is replaced."""

    name = serializers.CharField(max_length=80)
    query = serializers.CharField(max_length=1000, required=False, allow_blank=True, default="")
    columns = serializers.ListField(
        child=serializers.CharField(max_length=80), max_length=MAX_COLUMNS, required=False,
        default=list, help_text=f"{FORM[:1].upper()}{FORM[1:]}.",
    )  # fmt: skip
    sort = serializers.CharField(max_length=80, required=False, allow_blank=True, default="")
    group_by = serializers.CharField(max_length=80, required=False, allow_blank=True, default="")
    is_shared = serializers.BooleanField(
        required=False, default=False, help_text="Whether every user sees it (admins only)."
    )


class SavedViewSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    name = serializers.CharField()
    owner = serializers.CharField()
    query = serializers.CharField(allow_blank=True)
    columns = serializers.ListField(child=serializers.CharField())
    sort = serializers.CharField(allow_blank=True)
    group_by = serializers.CharField(allow_blank=True)
    is_shared = serializers.BooleanField()


class SavedViewsView(APIView):
    permission_classes = (IsViewer,)

    @extend_schema(operation_id="views_list", responses=SavedViewSerializer(many=True))
    def get(self, request: Request) -> Response:
        """List your saved views and those that admins share."""
        return Response([_row(view) for view in views.visible(request.user)])

    @extend_schema(
        operation_id="views_save",
        request=SavedViewRequestSerializer,
        responses=SavedViewSerializer,
    )
    def post(self, request: Request) -> Response:
        """Save a view of the list: query, columns, order and grouping."""
        wanted = body_of(request, SavedViewRequestSerializer)
        return Response(_row(views.save(owner=person(request), **wanted)))


class SavedViewView(APIView):
    permission_classes = (IsViewer,)

    @extend_schema(operation_id="views_delete", responses={200: MessageSerializer})
    def delete(self, request: Request, view_id: int) -> Response:
        """Delete a saved view of yours; admins also shared ones."""
        name = views.delete(view_id=view_id, actor=person(request))
        return Response({"message": f"View {name!r} was deleted."})


def _row(view: SavedView) -> dict[str, object]:
    return {
        "id": view.pk,
        "name": view.name,
        "owner": view.owner.get_username(),
        "query": view.query,
        "columns": view.columns,
        "sort": view.sort,
        "group_by": view.group_by,
        "is_shared": view.is_shared,
    }
