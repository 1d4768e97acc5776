"""What the list of operations can be narrowed down by: strict, so that a typo is never ignored."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, TypedDict

from django.db.models import Q
from rest_framework import serializers

from apps.operations import attention
from apps.operations.attention import Attention
from apps.operations.indexes import IS_ACTIVE
from apps.operations.lifecycle import ACTIVE, OLDER_REASONS, Reason, State
from apps.operations.models import OperationQuerySet
from apps.operations.requests.access import Person
from apps.operations.search.conditions import (
    condition,
    is_resumable,
    is_tagged,
    mentions_archived,
    owner_id,
    ran_on,
)
from apps.operations.search.groups import FORM as GROUP_FORM
from apps.operations.search.groups import MAX_OFFSET
from apps.operations.search.language import MAX_LENGTH
from trainops.http.serializers import FewOfManySerializer, StrictSerializer
from trainops.kind import KINDS

MOMENTS = ["iso-8601", "%Y-%m-%d"]


class ManyField(serializers.CharField):
    """Several values in one parameter, separated by commas; each one of `allowed`, if given.

    `older` are names of older versions, with the values that they stand for.
    """

    def __init__(
        self,
        *,
        allowed: Iterable[str] = (),
        older: Mapping[str, str] = MappingProxyType({}),
        **options: Any,
    ) -> None:
        self.allowed, self.older = tuple(allowed), older
        super().__init__(**options)

    def to_internal_value(self, data: Any) -> list[str]:  # type: ignore[override] # many in one
        given = [each.strip() for each in super().to_internal_value(data).split(",")]
        values = [self.older.get(each, each) for each in given]
        unknown = [each for each in values if self.allowed and each not in self.allowed]
        if unknown:
            raise serializers.ValidationError(
                f"{unknown[0][:60]!r} is not allowed; allowed: {', '.join(self.allowed)}"
            )
        return values


class Criteria(TypedDict, total=False):
    """The validated values of OperationQuery."""

    kind: list[str]
    status: list[str]
    state: list[str]
    owner: str
    tag: list[str]
    recipe: str
    reason: list[str]
    worker: str
    created_after: datetime
    created_before: datetime
    resumable: bool
    needs_attention: bool
    attention: list[str]
    search: str
    q: str
    part_of: str


class OperationQuery(FewOfManySerializer):
    kind = ManyField(
        required=False, allowed=KINDS, help_text="One or more values, separated by commas."
    )
    status = ManyField(
        required=False, allowed=State.values, help_text="One or more values, separated by commas."
    )
    state = ManyField(
        required=False, allowed=State.values, help_text="Deprecated alias of `status`."
    )
    owner = serializers.CharField(required=False, help_text="Username, or `me`.")
    tag = ManyField(required=False, help_text="Tags, separated by commas; it must have all.")
    recipe = serializers.CharField(required=False, max_length=64, help_text="Name of the recipe.")
    reason = ManyField(
        required=False,
        allowed=[each for each in Reason.values if each],
        older=OLDER_REASONS,
        help_text="Why it ended: one or more values, separated by commas.",
    )
    worker = serializers.CharField(
        required=False,
        max_length=120,
        help_text="Worker on which the operation runs or ran: its id, or the start of it.",
    )
    created_after = serializers.DateTimeField(
        required=False, input_formats=MOMENTS, help_text="Earliest creation time or day, inclusive."
    )
    created_before = serializers.DateTimeField(
        required=False, input_formats=MOMENTS, help_text="Latest creation time or day, exclusive."
    )
    resumable = serializers.BooleanField(
        required=False,
        allow_null=True,
        default=None,
        help_text="FAILED or CANCELLED, with a healthy checkpoint.",
    )
    needs_attention = serializers.BooleanField(
        required=False,
        allow_null=True,
        default=None,
        help_text="Whether there is a reason (see `attention`) that no user has acknowledged.",
    )
    attention = ManyField(
        required=False,
        allowed=Attention.values,
        help_text="Why it needs attention: one or more values, separated by commas.",
    )
    search = serializers.CharField(
        required=False, max_length=120, help_text="Words, each part of the name or id."
    )
    q = serializers.CharField(
        required=False,
        max_length=MAX_LENGTH,
        help_text="Query, such as `state:failed val_loss<0.1 epochs>=50 tag:night older:7d`.",
    )
    part_of = serializers.CharField(
        required=False,
        max_length=64,
        help_text="Operation whose subtasks to list; other lists omit subtasks.",
    )


class GroupQuery(OperationQuery):
    group_by = serializers.CharField(max_length=80, help_text=f"What a group shares: {GROUP_FORM}.")
    limit = serializers.IntegerField(required=False, min_value=1, max_value=200, default=50)
    offset = serializers.IntegerField(
        required=False,
        min_value=0,
        max_value=MAX_OFFSET,
        default=0,
        help_text="Number of groups to skip.",
    )


def narrowed(operations: OperationQuerySet, query: Criteria, user: Person) -> OperationQuerySet:
    """Return those of `operations` that match every criterion of `query`.

    API and page narrow their lists by the same criteria. Raises QueryError.
    """
    text = query.get("q", "")
    operations = _listed(operations, query.get("part_of"), text)
    for name, value in query.items():
        if name in _FILTERS and value is not None:
            operations = operations.filter(_FILTERS[name](value))
    for word in query.get("search", "").split():
        operations = operations.filter(Q(name__icontains=word) | Q(id__icontains=word))
    if text:
        operations = operations.filter(condition(text, user))
    if owner := query.get("owner"):
        operations = operations.filter(owner_id=owner_id(owner, user))
    for tag in query.get("tag", ()):
        operations = operations.filter(is_tagged(tag))
    return operations


def _listed(operations: OperationQuerySet, parent: str | None, text: str) -> OperationQuerySet:
    """Return the subtasks of `parent`, else whole operations without archived ones."""
    if parent:
        return operations.filter(subtask__parent=parent)
    return operations.whole() if mentions_archived(text) else operations.listed()


def _in_state(states: list[str]) -> Q:
    return IS_ACTIVE if set(states) == ACTIVE else Q(state__in=states)


def _if(condition: Callable[[], Q]) -> Callable[[bool], Q]:
    return lambda wanted: condition() if wanted else ~condition()


_FILTERS: dict[str, Callable[[Any], Q]] = {
    "kind": lambda kinds: Q(kind__in=kinds),
    "status": _in_state,
    "state": _in_state,
    "recipe": lambda name: Q(recipe=name),
    "reason": lambda reasons: Q(reason__in=reasons),
    "worker": ran_on,
    "created_after": lambda moment: Q(created_at__gte=moment),
    "created_before": lambda moment: Q(created_at__lt=moment),
    "resumable": _if(is_resumable),
    "needs_attention": _if(attention.needed),
    "attention": lambda reasons: attention.needed_for(*reasons),
}


class AttemptQuery(StrictSerializer):
    attempt = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=2**31 - 1,
        help_text="Number of the attempt; by default all attempts.",
    )


class LogQuery(AttemptQuery):
    after = serializers.IntegerField(
        required=False,
        min_value=0,
        max_value=2**63 - 1,
        help_text="`last_id` of the previous response.",
    )
    tail = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=10_000,
        default=200,
        help_text="Number of latest lines.",
    )


class WindowQuery(AttemptQuery):
    name = ManyField(required=False, help_text="Metrics, separated by commas; by default all.")
    after_step = serializers.IntegerField(required=False, min_value=0, max_value=2**63 - 1)
    to_step = serializers.IntegerField(
        required=False,
        min_value=0,
        max_value=2**63 - 1,
        help_text="Last step: with `after_step`, a window of steps.",
    )


class MetricsQuery(WindowQuery):
    after_id = serializers.IntegerField(
        required=False,
        min_value=0,
        max_value=2**63 - 1,
        default=0,
        help_text="`last_id` of the previous response; only later points are returned.",
    )
    max_points = serializers.IntegerField(
        required=False,
        min_value=10,
        max_value=100_000,
        default=2000,
        help_text="Maximum points per curve; longer curves are thinned and keep their extremes.",
    )
    first = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=100_000,
        help_text="Only the first N points in the order of their ids, none left out; to read all "
        "points, continue with `after_id` until `series` is empty.",
    )


class LiveQuery(StrictSerializer):
    points_after = serializers.IntegerField(required=False, min_value=0, max_value=2**63 - 1)
    log_after = serializers.IntegerField(
        required=False,
        min_value=0,
        max_value=2**63 - 1,
        help_text="`last_id` of the previous response; 0 returns the last lines.",
    )
    events_after = serializers.IntegerField(required=False, min_value=0, max_value=2**63 - 1)
    max_points = serializers.IntegerField(
        required=False, min_value=10, max_value=100_000, default=2000
    )
    tail = serializers.IntegerField(required=False, min_value=1, max_value=10_000, default=200)


class ArtifactQuery(StrictSerializer):
    checkpoint_id = serializers.CharField(
        required=False,
        max_length=200,
        default="",
        help_text="Checkpoint id, `latest`, `best` or `best:METRIC` (the best by one of several "
        "monitored metrics); by default the final checkpoint, else the latest.",
    )


class ExportQuery(ArtifactQuery):
    which = serializers.ChoiceField(
        choices=["last", "best"],
        required=False,
        default=None,
        allow_null=True,
        help_text="Latest or best checkpoint; where every checkpoint holds both, its last state or "
        "its best model. By default the final checkpoint, else "
        "the latest.",
    )
    agent = serializers.IntegerField(
        min_value=0,
        required=False,
        default=None,
        allow_null=True,
        help_text="Number of the agent (separate networks only); by default the one with the "
        "best evaluation.",
    )
    packed = serializers.BooleanField(
        required=False,
        default=False,
        help_text="Return a zip that also contains the .sha256 file of the other tool.",
    )


class ComparisonQuery(StrictSerializer):
    ids = ManyField(help_text="Ids of 2 to 12 operations, separated by commas.")
    baseline = serializers.CharField(
        required=False,
        default="",
        help_text="Operation to which deltas are computed; by default the first one.",
    )


class ImportanceQuery(StrictSerializer):
    target = serializers.CharField(
        required=False,
        max_length=200,
        default="",
        help_text="Key of a value in `dimensions`; by default the objective, or the value that "
        "most operations have.",
    )


class ImportanceOfQuery(ImportanceQuery):
    ids = ManyField(help_text="Ids of 2 to 12 operations, separated by commas.")


class RecipeQuery(StrictSerializer):
    kind = serializers.ChoiceField(
        choices=list(KINDS),
        required=False,
        error_messages={
            "invalid_choice": f"{{input!r}} is not a kind; allowed: {', '.join(KINDS)}"
        },
    )
