"""Endpoints for operations that start from a checkpoint: fork, extend, warm start, preview."""

from collections.abc import Callable
from functools import partial
from typing import Any

from django.urls import reverse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.operations.api.operations import KEY, answer, idempotency_key
from apps.operations.api.serializers import ForkSerializer, OperationDetailSerializer
from apps.operations.attempts import resume_preview
from apps.operations.models import Operation
from apps.operations.requests import access, forking, previews, services, warm_starting
from apps.operations.requests.access import Action
from trainops.http.asking import body_of, person
from trainops.http.serializers import StrictSerializer


class ExtendSerializer(ForkSerializer):
    """How long the new operation is to run."""

    config = None  # type: ignore[assignment] # only its length differs
    to = serializers.IntegerField(
        min_value=1, help_text="Total epochs, rounds or steps; more than before."
    )


class WarmStartSerializer(ForkSerializer):
    """What is to differ from the operation whose weights are taken."""

    accept_inexact = None  # type: ignore[assignment] # nothing of it is continued


class PreviewRequestSerializer(StrictSerializer):
    """The request whose consequences are asked for."""

    verb = serializers.ChoiceField(choices=["resume", "fork", "extend", "warm_start"])
    checkpoint_id = ForkSerializer().fields["checkpoint_id"]
    config = ForkSerializer().fields["config"]
    to = serializers.IntegerField(
        min_value=1,
        required=False,
        allow_null=True,
        default=None,
        help_text="Total epochs, rounds or steps (extend only).",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        given = [name for name in ("config", "to") if attrs[name]]
        if attrs["verb"] == "resume" and given:
            problems = {name: f"got {attrs[name]}; allowed: none for a resume" for name in given}
            raise ValidationError(problems)
        return attrs


class ConfigChangeSerializer(serializers.Serializer[Any]):
    field = serializers.CharField(help_text="Dotted path in the config.")
    before = serializers.JSONField()
    after = serializers.JSONField()


class BranchPreviewSerializer(serializers.Serializer[Any]):
    """What the request would do; nothing is submitted."""

    checkpoint_id = serializers.CharField()
    step = serializers.IntegerField()
    place = serializers.CharField(help_text="Position of the checkpoint as text.")
    changes = ConfigChangeSerializer(many=True)
    notes = serializers.ListField(child=serializers.CharField())
    changed_files = serializers.ListField(
        child=serializers.CharField(),
        help_text="Files of the recipe on the server that differ from those of the checkpoint; a "
        "resume, a fork and an extension require `accept_inexact` then.",
    )


class ForkView(APIView):
    @extend_schema(
        operation_id="operations_fork",
        request=ForkSerializer,
        responses={202: OperationDetailSerializer},
        parameters=[KEY],
    )
    def post(self, request: Request, operation_id: str) -> Response:
        """Submit a new operation that starts from one of its checkpoints.

        Only what changes nothing that the checkpoint is made of may differ in its config. 409
        `CODE_CHANGED` where files of the recipe were changed, until `accept_inexact` is given.
        """
        return _submitted(request, ForkSerializer, partial(forking.fork, operation_id=operation_id))


class ExtendView(APIView):
    @extend_schema(
        operation_id="operations_extend",
        request=ExtendSerializer,
        responses={202: OperationDetailSerializer},
        parameters=[KEY],
    )
    def post(self, request: Request, operation_id: str) -> Response:
        """Submit a fork that runs longer: more epochs, rounds or steps.

        409 `CODE_CHANGED` as for a fork.
        """
        return _submitted(
            request, ExtendSerializer, partial(forking.extend, operation_id=operation_id)
        )


class WarmStartView(APIView):
    @extend_schema(
        operation_id="operations_warm_start",
        request=WarmStartSerializer,
        responses={202: OperationDetailSerializer},
        parameters=[KEY],
    )
    def post(self, request: Request, operation_id: str) -> Response:
        """Submit a new operation that starts at step 0 with the weights of one of its checkpoints.

        Any field of the config may differ. Weights that are missing, unexpected or of another
        shape are named in the first event of the new operation.
        """
        return _submitted(
            request,
            WarmStartSerializer,
            partial(warm_starting.warm_start, operation_id=operation_id),
        )


class PreviewView(APIView):
    @extend_schema(
        operation_id="operations_preview",
        request=PreviewRequestSerializer,
        responses=BranchPreviewSerializer,
    )
    def post(self, request: Request, operation_id: str) -> Response:
        """Return what a resume, a fork, an extension or a warm start would do, without doing it."""
        wanted = body_of(request, PreviewRequestSerializer)
        verb = wanted.pop("verb")
        if verb == "resume":
            access.require(services.get(operation_id), request.user, Action.RESUME)
            checkpoint_id = wanted["checkpoint_id"]
            found = resume_preview.preview(operation_id=operation_id, checkpoint_id=checkpoint_id)
        else:
            found = previews.preview(verb, operation_id=operation_id, **wanted)
        return Response(
            {
                "checkpoint_id": found.checkpoint.pk,
                "step": found.checkpoint.step,
                "place": found.place,
                "changes": [
                    {"field": each.field, "before": each.before, "after": each.after}
                    for each in found.changes
                ],
                "notes": list(found.notes),
                "changed_files": list(found.changed_files),
            }
        )


def _submitted(
    request: Request, serializer: type[ForkSerializer], submit: Callable[..., Operation]
) -> Response:
    wanted = body_of(request, serializer)
    made = submit(owner=person(request), idempotency_key=idempotency_key(request), **wanted)
    address = reverse("api-operation", args=[made.pk])
    return answer(made.pk, request, status=202, headers={"Location": address})
