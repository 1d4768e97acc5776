"""The doors for one operation's checkpoints: look, delete, pin, verify."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.checkpoints import serializers as shown
from apps.checkpoints import services as checkpoints
from apps.checkpoints.models import Checkpoint
from apps.operations import access, services
from apps.operations.artifacts import verified
from apps.operations.errors import CheckpointNotFound
from apps.operations.serializers import DeletionSerializer
from trainops.http.asking import body_of, person


class PinnedSerializer(serializers.Serializer[Any]):
    checkpoint_id = serializers.CharField()
    pinned = serializers.BooleanField()
    message = serializers.CharField()


class VerifiedSerializer(serializers.Serializer[Any]):
    checkpoint_id = serializers.CharField()
    health = serializers.ChoiceField(choices=Checkpoint.Health.choices)
    missing_artifacts = serializers.ListField(child=serializers.CharField())
    altered_artifacts = serializers.ListField(child=serializers.CharField())
    message = serializers.CharField()


class CheckpointsOfView(APIView):
    @extend_schema(operation_id="checkpoints_delete_all", responses={200: DeletionSerializer})
    def delete(self, request: Request, operation_id: str) -> Response:
        """Delete all checkpoints of an operation: it is not resumable then. Not while it runs."""
        access.require(services.get(operation_id), request.user, "delete checkpoints")
        return _deleted(operation_id, request)


class CheckpointView(APIView):
    @extend_schema(operation_id="checkpoints_get", responses=shown.CheckpointDetailSerializer)
    def get(self, request: Request, operation_id: str, checkpoint_id: str) -> Response:
        """One checkpoint with its whole state and its files."""
        return Response(shown.detail(find(operation_id, checkpoint_id)))

    @extend_schema(operation_id="checkpoints_delete", responses={200: DeletionSerializer})
    def delete(self, request: Request, operation_id: str, checkpoint_id: str) -> Response:
        """Delete one checkpoint. Not while its operation runs."""
        access.require(services.get(operation_id), request.user, "delete checkpoints")
        return _deleted(operation_id, request, checkpoint_id)


class PinView(APIView):
    pinned = True

    @extend_schema(operation_id="checkpoints_pin", request=None, responses=PinnedSerializer)
    def post(self, request: Request, operation_id: str, checkpoint_id: str) -> Response:
        """Keep it for ever: no retention and no clean-up deletes it."""
        return self._pin(request, operation_id, checkpoint_id)

    def _pin(self, request: Request, operation_id: str, checkpoint_id: str) -> Response:
        body_of(request)
        access.require(services.get(operation_id), request.user, "pin checkpoints")
        checkpoint = find(operation_id, checkpoint_id)
        checkpoints.pin(checkpoint.pk, pinned=self.pinned)
        kept = "kept for ever" if self.pinned else "kept as its operation's retention says"
        return Response(
            {
                "checkpoint_id": checkpoint.pk,
                "pinned": self.pinned,
                "message": f"The {checkpoint} is {kept}.",
            }
        )


class UnpinView(PinView):
    pinned = False

    @extend_schema(operation_id="checkpoints_unpin", request=None, responses=PinnedSerializer)
    def post(self, request: Request, operation_id: str, checkpoint_id: str) -> Response:
        """Leave it to retention and clean-up again."""
        return self._pin(request, operation_id, checkpoint_id)


class VerifyView(APIView):
    @extend_schema(operation_id="checkpoints_verify", request=None, responses=VerifiedSerializer)
    def post(self, request: Request, operation_id: str, checkpoint_id: str) -> Response:
        """Read every byte and compare it with what was saved. What is wrong is marked corrupted."""
        body_of(request)
        checkpoint = find(operation_id, checkpoint_id)
        problem = verified(checkpoint)
        return Response(
            {
                "checkpoint_id": checkpoint.pk,
                "health": "corrupted" if problem else "healthy",
                "missing_artifacts": problem.missing if problem else [],
                "altered_artifacts": problem.altered if problem else [],
                "message": str(problem) if problem else f"The {checkpoint} is what was saved.",
            }
        )


def find(operation_id: str, checkpoint_id: str) -> Checkpoint:
    """Return one of an operation's checkpoints. Raises OperationNotFound, CheckpointNotFound."""
    services.get(operation_id)
    mine = Checkpoint.objects.filter(operation_id=operation_id, pk=checkpoint_id)
    checkpoint = mine.first()
    if checkpoint is None:
        raise CheckpointNotFound(operation_id, checkpoint_id)
    return checkpoint


def _deleted(operation_id: str, request: Request, checkpoint_id: str = "") -> Response:
    freed = services.delete_checkpoints(
        operation_id=operation_id, actor=person(request), checkpoint_id=checkpoint_id
    )
    return Response(
        {
            "message": f"Deleted {freed.num_checkpoints} checkpoints of {operation_id}: "
            f"{freed.freed_bytes} bytes.",
            "num_checkpoints": freed.num_checkpoints,
            "freed_bytes": freed.freed_bytes,
        }
    )
