"""The endpoint of operations in groups."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.operations.filters import GroupQuery, narrowed
from apps.operations.models import Operation
from apps.operations.search.groups import grouped
from trainops.http.asking import query_of
from trainops.http.etags import with_etag


class BestOfGroupSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(help_text="Metric, or dotted path in the result.")
    mode = serializers.ChoiceField(choices=["min", "max"])
    value = serializers.FloatField()


class GroupSerializer(serializers.Serializer[Any]):
    value = serializers.JSONField(
        allow_null=True, help_text="The shared number or text; null: operations without one."
    )
    label = serializers.CharField(  # type: ignore[assignment] # a field of that name
        allow_blank=True, help_text="The value as text; of a study its name."
    )
    query = serializers.CharField(
        allow_blank=True,
        help_text="Term of `q` that finds the operations; empty where no term can.",
    )
    num_operations = serializers.IntegerField()
    counts = serializers.DictField(
        child=serializers.IntegerField(), help_text="Number of operations by state."
    )
    newest_at = serializers.DateTimeField(help_text="Creation time of the newest operation.")
    best = BestOfGroupSerializer(
        allow_null=True,
        help_text="Best value of the objective among completed operations; null without a "
        "value, or if their objectives differ.",
    )


class GroupsSerializer(serializers.Serializer[Any]):
    group_by = serializers.CharField()
    groups = GroupSerializer(many=True, help_text="Those with the newest operation first.")
    has_more = serializers.BooleanField()


class GroupsView(APIView):
    @extend_schema(
        operation_id="operations_groups", parameters=[GroupQuery], responses=GroupsSerializer
    )
    @with_etag
    def get(self, request: Request) -> Response:
        """Count operations in groups by study, tag, project, config field or parameter.

        The filters are those of the list.
        """
        query = query_of(request, GroupQuery)
        name, limit, offset = (query.pop(each) for each in ("group_by", "limit", "offset"))
        operations = narrowed(Operation.objects.all(), query, request.user)
        found = grouped(operations, name, limit=limit, offset=offset)
        return Response({"group_by": name, "groups": found.rows, "has_more": found.has_more})
