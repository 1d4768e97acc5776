"""The endpoint of the audit log; for admins."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from trainops.http.asking import query_of
from trainops.http.models import AuditEntry
from trainops.http.pagination import NewestFirst
from trainops.http.permissions import IsAdmin
from trainops.http.serializers import StrictSerializer


class AuditQuery(StrictSerializer):
    event = serializers.CharField(
        required=False, max_length=40, help_text="Event, such as `operation deleted`."
    )
    actor = serializers.CharField(required=False, max_length=150, help_text="Username.")
    since = serializers.DateTimeField(required=False, help_text="Entries at or after this time.")
    before = serializers.DateTimeField(required=False, help_text="Entries before this time.")


class AuditEntrySerializer(serializers.ModelSerializer[AuditEntry]):
    details = serializers.DictField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = AuditEntry
        fields = ("id", "created_at", "event", "actor", "address", "details")
        read_only_fields = fields


class AuditView(APIView):
    permission_classes = (IsAdmin,)
    pagination_class = NewestFirst

    @extend_schema(
        operation_id="audit_list",
        parameters=[AuditQuery],
        responses=AuditEntrySerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        """List the audit log, newest first: what was done to accounts, tokens and stored work."""
        wanted: dict[str, Any] = query_of(request, AuditQuery, is_paged=True)
        names = {"since": "created_at__gte", "before": "created_at__lt"}
        found = AuditEntry.objects.filter(**{names.get(n, n): each for n, each in wanted.items()})
        paginator = NewestFirst()
        page = paginator.paginate_queryset(found, request, self)
        return paginator.get_paginated_response(AuditEntrySerializer(page, many=True).data)
