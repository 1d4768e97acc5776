"""Is the process up, and does what it stands on answer? For load balancers: no login."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.operations.scheduling import readiness
from trainops.errors import DomainError


class HealthSerializer(serializers.Serializer[Any]):
    status = serializers.ChoiceField(choices=["ok"])


class ReadySerializer(serializers.Serializer[Any]):
    status = serializers.ChoiceField(choices=["ready"])
    parts = serializers.DictField(child=serializers.CharField())


class HealthView(APIView):
    authentication_classes = ()
    permission_classes = (AllowAny,)

    @extend_schema(operation_id="health", responses=HealthSerializer)
    def get(self, request: Request) -> Response:
        """Liveness probe: the process is up."""
        return Response({"status": "ok"})


class ReadyView(APIView):
    authentication_classes = ()
    permission_classes = (AllowAny,)

    @extend_schema(operation_id="ready", responses=ReadySerializer)
    def get(self, request: Request) -> Response:
        """Readiness probe: database, broker and storage respond; 503 names those that do not."""
        parts = readiness.parts()
        payload = {part.name: part.problem or "ready" for part in parts}
        if away := [part.name for part in parts if not part.is_ready]:
            raise DomainError(
                "NOT_READY", f"Not ready: {', '.join(away)}.", {"parts": payload}, status=503
            )
        return Response({"status": "ready", "parts": payload})
