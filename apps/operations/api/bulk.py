"""The endpoint that does one action to several operations."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.operations.api.serializers import ResumeRequestSerializer
from apps.operations.filters import narrowed
from apps.operations.models import Operation
from apps.operations.requests import bulk
from apps.operations.requests.editing import MAX_ACKNOWLEDGEMENT
from apps.operations.requests.projects import MAX_PROJECT
from apps.operations.requests.submission import MAX_TAG_LENGTH, MAX_TAGS
from apps.operations.search.language import MAX_LENGTH
from trainops.http.asking import body_of, person
from trainops.http.serializers import StrictSerializer

ONE_OF = "allowed: either `ids` or `q`"
OUTCOMES = ("done", "allowed", "refused")


def _tags(help_text: str) -> serializers.ListField:
    return serializers.ListField(
        child=serializers.CharField(max_length=MAX_TAG_LENGTH),
        required=False,
        default=list,
        max_length=MAX_TAGS,
        help_text=help_text,
    )


class BulkRequestSerializer(StrictSerializer):
    """An action, and the operations: their ids, or a query that they match."""

    action = serializers.ChoiceField(
        choices=list(bulk.ACTIONS),
        error_messages={
            "invalid_choice": f"got {{input!r}}; allowed: {', '.join(bulk.ACTIONS)}",
        },
    )
    ids = serializers.ListField(
        child=serializers.CharField(max_length=64),
        required=False,
        min_length=1,
        max_length=bulk.MAX_OPERATIONS,
        help_text="Ids of the operations.",
    )
    q = serializers.CharField(
        required=False,
        max_length=MAX_LENGTH,
        help_text="Query of the list, such as `state:failed tag:night`; at most the latest "
        f"{bulk.MAX_OPERATIONS} operations that match.",
    )
    dry_run = serializers.BooleanField(
        required=False, default=False, help_text="Whether only the outcomes are returned."
    )
    accept_inexact = ResumeRequestSerializer().fields["accept_inexact"]
    note = serializers.CharField(
        required=False,
        default="",
        allow_blank=True,
        max_length=MAX_ACKNOWLEDGEMENT,
        help_text="Note on what is acknowledged (`acknowledge` only).",
    )
    tags = _tags(help_text="Tags to add (`edit` only).")
    untags = _tags(help_text="Tags to remove (`edit` only).")
    project = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=MAX_PROJECT,
        help_text="New project, empty for none (`edit` only). By default it is unchanged.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if ("ids" in attrs) == ("q" in attrs):
            given = "both" if "ids" in attrs else "none"
            raise serializers.ValidationError({"ids": f"got {given}; {ONE_OF}"})
        has_change = bool(attrs["tags"] or attrs["untags"] or "project" in attrs)
        if attrs["action"] == "edit" and not has_change:
            problem = "got no change; allowed: `tags`, `untags` or `project`"
            raise serializers.ValidationError({"action": problem})
        return attrs


class BulkResultSerializer(serializers.Serializer[Any]):
    operation_id = serializers.CharField()
    name = serializers.CharField(allow_blank=True)
    outcome = serializers.ChoiceField(
        choices=OUTCOMES, help_text="`allowed`: a dry run found no reason against it."
    )
    code = serializers.CharField(
        allow_blank=True, help_text="Error code; a dry run has it only for unknown ids."
    )
    message = serializers.CharField(allow_blank=True)
    freed_bytes = serializers.IntegerField(help_text="Size of deleted files.")


class BulkSerializer(serializers.Serializer[Any]):
    action = serializers.ChoiceField(choices=list(bulk.ACTIONS))
    dry_run = serializers.BooleanField()
    num_matching = serializers.IntegerField(
        help_text="Number of given ids, or of operations that match `q`."
    )
    num_refused = serializers.IntegerField()
    outcomes = BulkResultSerializer(many=True, help_text="One for each operation.")


class BulkView(APIView):
    @extend_schema(
        operation_id="operations_bulk", request=BulkRequestSerializer, responses=BulkSerializer
    )
    def post(self, request: Request) -> Response:
        """Cancel, kill, resume, delete, edit or mark up to 500 operations.

        Each operation has an outcome of its own; a refusal does not affect the others.
        """
        wanted = body_of(request, BulkRequestSerializer)
        ids, num_matching = _selected(wanted, request)
        operations = bulk.fetch(ids)
        action, is_dry_run = wanted["action"], wanted["dry_run"]
        if is_dry_run:
            outcomes = bulk.preview(action, operations, request.user)
        else:
            options = bulk.BulkOptions(
                accept_inexact=wanted["accept_inexact"],
                note=wanted["note"],
                tags=wanted["tags"],
                untags=wanted["untags"],
                project=wanted.get("project"),
            )
            outcomes = bulk.carry_out(action, operations, person(request), options)
        outcomes += bulk.missing(ids, operations)
        return Response(
            {
                "action": action,
                "dry_run": is_dry_run,
                "num_matching": num_matching,
                "num_refused": sum(each.is_refused for each in outcomes),
                "outcomes": [_shown(each, is_dry_run) for each in outcomes],
            }
        )


def _selected(wanted: dict[str, Any], request: Request) -> tuple[list[str], int]:
    """Return the ids, and how many operations the request means. Raises QueryError."""
    if "ids" in wanted:
        ids = list(dict.fromkeys(wanted["ids"]))
        return ids, len(ids)
    found = narrowed(Operation.objects.all(), {"q": wanted["q"]}, request.user)
    first = found.order_by("-created_at", "-pk").values_list("pk", flat=True)
    return list(first[: bulk.MAX_OPERATIONS]), found.count()


def _shown(outcome: bulk.BulkResult, is_dry_run: bool) -> dict[str, object]:
    succeeded = "allowed" if is_dry_run else "done"
    return {
        "operation_id": outcome.operation_id,
        "name": outcome.name,
        "outcome": "refused" if outcome.is_refused else succeeded,
        "code": outcome.code,
        "message": outcome.message,
        "freed_bytes": outcome.freed_bytes,
    }
