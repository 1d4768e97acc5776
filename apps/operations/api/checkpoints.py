"""Endpoints for the checkpoints of an operation: list, delete, pin, verify."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.checkpoints import serializers as shown
from apps.checkpoints import services as checkpoints
from apps.checkpoints.models import Checkpoint
from apps.operations.api.serializers import DeletionSerializer
from apps.operations.attempts import recovery
from apps.operations.errors import CheckpointNotFound, StorageUnavailable
from apps.operations.files import verification
from apps.operations.files.verification import LEVELS
from apps.operations.requests import access, deletion, services
from trainops.http.asking import body_of, person


class PinnedSerializer(serializers.Serializer[Any]):
    checkpoint_id = serializers.CharField()
    pinned = serializers.BooleanField()
    message = serializers.CharField()


class CheckSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    level = serializers.ChoiceField(choices=LEVELS)
    detail = serializers.CharField(
        help_text="Parts that were compared, and parts that could not be."
    )


class VerifiedSerializer(serializers.Serializer[Any]):
    checkpoint_id = serializers.CharField()
    health = serializers.ChoiceField(choices=Checkpoint.Health.choices)
    missing_artifacts = serializers.ListField(child=serializers.CharField())
    altered_artifacts = serializers.ListField(child=serializers.CharField())
    level = serializers.ChoiceField(
        choices=LEVELS, help_text="The most severe level of the checks."
    )
    checks = CheckSerializer(many=True)
    message = serializers.CharField()


class KeptSerializer(serializers.Serializer[Any]):
    checkpoint_id = serializers.CharField()
    checkpoint_type = serializers.ChoiceField(choices=Checkpoint.Type.choices)
    pinned = serializers.BooleanField()


class CheckpointsDeletedSerializer(DeletionSerializer):
    kept = KeptSerializer(many=True, help_text="Final and pinned checkpoints, which are kept.")


class CheckpointsOfView(APIView):
    @extend_schema(
        operation_id="checkpoints_delete_all", responses={200: CheckpointsDeletedSerializer}
    )
    def delete(self, request: Request, operation_id: str) -> Response:
        """Delete the checkpoints of an operation that is not active.

        Its result (final) and pinned ones are kept, and named in `kept`: delete them one by one.
        """
        access.require(services.get(operation_id), request.user, "delete checkpoints of")
        return _deleted(operation_id, request)


class CheckpointView(APIView):
    @extend_schema(operation_id="checkpoints_get", responses=shown.CheckpointDetailSerializer)
    def get(self, request: Request, operation_id: str, checkpoint_id: str) -> Response:
        """Return a checkpoint with its complete state and its files."""
        return Response(shown.detail(find(operation_id, checkpoint_id)))

    @extend_schema(operation_id="checkpoints_delete", responses={200: CheckpointsDeletedSerializer})
    def delete(self, request: Request, operation_id: str, checkpoint_id: str) -> Response:
        """Delete a checkpoint of an operation that is not active."""
        access.require(services.get(operation_id), request.user, "delete checkpoints of")
        return _deleted(operation_id, request, checkpoint_id)


class PinView(APIView):
    pinned = True

    @extend_schema(operation_id="checkpoints_pin", request=None, responses=PinnedSerializer)
    def post(self, request: Request, operation_id: str, checkpoint_id: str) -> Response:
        """Keep a checkpoint forever: neither retention nor cleanup deletes it."""
        return self._pin(request, operation_id, checkpoint_id)

    def _pin(self, request: Request, operation_id: str, checkpoint_id: str) -> Response:
        body_of(request)
        access.require(services.get(operation_id), request.user, "pin checkpoints of")
        checkpoint = find(operation_id, checkpoint_id)
        checkpoints.pin(checkpoint.pk, pinned=self.pinned)
        state = "pinned" if self.pinned else "no longer pinned"
        return Response(
            {
                "checkpoint_id": checkpoint.pk,
                "pinned": self.pinned,
                "message": f"The {checkpoint} is {state}.",
            }
        )


class UnpinView(PinView):
    pinned = False

    @extend_schema(operation_id="checkpoints_unpin", request=None, responses=PinnedSerializer)
    def post(self, request: Request, operation_id: str, checkpoint_id: str) -> Response:
        """Unpin a checkpoint: retention and cleanup may delete it."""
        return self._pin(request, operation_id, checkpoint_id)


class VerifyView(APIView):
    @extend_schema(operation_id="checkpoints_verify", request=None, responses=VerifiedSerializer)
    def post(self, request: Request, operation_id: str, checkpoint_id: str) -> Response:
        """Compare every byte with what was saved, and update the health of the checkpoint.

        Where that is well, a process loads it into a fresh job of its config, as a resume does, and
        `checks` say what was compared. That takes seconds.
        """
        body_of(request)
        checkpoint = find(operation_id, checkpoint_id)
        found = verification.verify(checkpoint, person=person(request).get_username())
        problem = found.problem
        return Response(
            {
                "checkpoint_id": found.checkpoint.pk,
                "health": found.health,
                "missing_artifacts": problem.missing if problem else [],
                "altered_artifacts": problem.altered if problem else [],
                "level": found.level,
                "checks": found.checks,
                "message": found.message,
            }
        )


class UnrecordedSerializer(serializers.Serializer[Any]):
    directory = serializers.CharField()
    attempt = serializers.IntegerField()
    step = serializers.IntegerField()
    size_bytes = serializers.IntegerField()


class RecoverableSerializer(serializers.Serializer[Any]):
    unrecorded = UnrecordedSerializer(many=True, help_text="Newest first.")


class RecoveredSerializer(serializers.Serializer[Any]):
    message = serializers.CharField()
    checkpoint_ids = serializers.ListField(child=serializers.CharField())
    problems = serializers.ListField(
        child=serializers.CharField(),
        help_text="Problems of the unrecorded checkpoints.",
    )


class RecoveryView(APIView):
    """For a database that was restored from a backup, and is older than the storage."""

    @extend_schema(operation_id="operations_recovery_get", responses=RecoverableSerializer)
    def get(self, request: Request, operation_id: str) -> Response:
        """List complete checkpoints in the storage that are newer than those in the database."""
        operation = services.get(operation_id)
        try:
            found = recovery.unrecorded(operation)
        except OSError as error:
            raise StorageUnavailable(error) from error
        return Response(
            {
                "unrecorded": [
                    {
                        "directory": each.artifacts_path.partition("/")[2],
                        "attempt": each.attempt,
                        "step": each.step,
                        "size_bytes": each.size_bytes,
                    }
                    for each in found
                ]
            }
        )

    @extend_schema(
        operation_id="operations_recovery_post", request=None, responses=RecoveredSerializer
    )
    def post(self, request: Request, operation_id: str) -> Response:
        """Verify and record these checkpoints, so that the operation can resume from them."""
        body_of(request)
        access.require(services.get(operation_id), request.user, "recover checkpoints of")
        done = recovery.recover(operation_id=operation_id, actor=person(request))
        return Response(
            {
                "message": done.message,
                "checkpoint_ids": [each.pk for each in done.checkpoints],
                "problems": done.problems,
            }
        )


def find(operation_id: str, checkpoint_id: str) -> Checkpoint:
    """Return one of an operation's checkpoints. Raises OperationNotFound, CheckpointNotFound."""
    services.get(operation_id)
    mine = Checkpoint.objects.named(operation_id, checkpoint_id)
    checkpoint = mine.first()
    if checkpoint is None:
        raise CheckpointNotFound(operation_id, checkpoint_id)
    return checkpoint


def _deleted(operation_id: str, request: Request, checkpoint_id: str = "") -> Response:
    done = deletion.delete_checkpoints(
        operation_id=operation_id, actor=person(request), checkpoint_id=checkpoint_id
    )
    message = f"Deleted from {operation_id}: {done.freed}."
    if done.kept:
        message += f" Kept: {', '.join(map(_named, done.kept))}; delete them one by one."
    return Response(
        {
            "message": message,
            "num_checkpoints": done.freed.num_checkpoints,
            "freed_bytes": done.freed.freed_bytes,
            "kept": [
                {"checkpoint_id": each.pk, "checkpoint_type": each.type, "pinned": each.pinned}
                for each in done.kept
            ],
        }
    )


def _named(checkpoint: Checkpoint) -> str:
    return f"{'pinned ' if checkpoint.pinned else ''}{checkpoint}"
