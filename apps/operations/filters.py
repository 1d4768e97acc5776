"""What the list of operations can be narrowed down by: strict, so that a typo is never ignored."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, Q, QuerySet
from rest_framework import serializers

from apps.operations import attention
from apps.operations.lifecycle import RESUMABLE, State
from apps.operations.models import Attempt, Operation, Tag
from apps.operations.requests.access import Person, has_checkpoint
from trainops.http.serializers import StrictSerializer
from trainops.kind import KINDS

MOMENTS = ["iso-8601", "%Y-%m-%d"]


class ManyField(serializers.CharField):
    """Several values in one parameter, separated by commas; each one of `allowed`, if given."""

    def __init__(self, *, allowed: Iterable[str] = (), **options: Any) -> None:
        self.allowed = tuple(allowed)
        super().__init__(**options)

    def to_internal_value(self, data: Any) -> list[str]:  # type: ignore[override] # many in one
        values = [each.strip() for each in super().to_internal_value(data).split(",")]
        unknown = [each for each in values if self.allowed and each not in self.allowed]
        if unknown:
            raise serializers.ValidationError(
                f"{unknown[0][:60]!r} is not one of them; allowed: {', '.join(self.allowed)}"
            )
        return values


class OperationQuery(StrictSerializer):
    kind = ManyField(required=False, allowed=KINDS, help_text="Several: separated by commas.")
    status = ManyField(
        required=False, allowed=State.values, help_text="Several: separated by commas."
    )
    state = ManyField(
        required=False, allowed=State.values, help_text="Deprecated alias of `status`."
    )
    owner = serializers.CharField(required=False, help_text="A username, or `me`.")
    tag = ManyField(required=False, help_text="Several: it must have them all.")
    worker = serializers.CharField(
        required=False, max_length=120, help_text="Runs or ever ran on this worker."
    )
    created_after = serializers.DateTimeField(
        required=False, input_formats=MOMENTS, help_text="From this moment (or day) on."
    )
    created_before = serializers.DateTimeField(
        required=False, input_formats=MOMENTS, help_text="Before this moment (or day)."
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
        help_text="FAILED, or with a self-check that found a resume not exact or impossible.",
    )
    search = serializers.CharField(
        required=False, max_length=120, help_text="Part of the name or of the id."
    )
    part_of = serializers.CharField(
        required=False,
        max_length=64,
        help_text="The clients of this distributed operation, which are not listed otherwise.",
    )


def narrowed(
    operations: QuerySet[Operation], query: Mapping[str, Any], user: Person
) -> QuerySet[Operation]:
    """Return those of `operations` that the validated `query` asks for."""
    server = query.get("part_of")
    operations = operations.filter(part__server=server) if server else operations.filter(part=None)
    for name, value in query.items():
        if name in _FILTERS and value is not None:
            operations = operations.filter(_FILTERS[name](value))
    if owner := query.get("owner"):
        operations = operations.filter(owner_id=_person_id(owner, user))
    for tag in query.get("tag", ()):
        tagged = Tag.objects.filter(name=tag)
        operations = operations.filter(pk__in=tagged.values("operation_id"))
    return operations


def _person_id(name: str, user: Person) -> Any:
    """Return whose id is meant; looked up first, since a join would hide the index by owner."""
    if name == "me":
        return user.pk
    found = User.objects.filter(username=name).values_list("pk", flat=True).first()
    return -1 if found is None else found


def _ran_on(worker_id: str) -> Q:
    ran = Attempt.objects.filter(operation_id=OuterRef("pk"), worker_id=worker_id)
    return Q(worker_id=worker_id) | Q(Exists(ran))


def _is_resumable(wanted: bool) -> Q:
    resumable = Q(state__in=RESUMABLE) & Q(has_checkpoint())
    return resumable if wanted else ~resumable


def _needs_attention(wanted: bool) -> Q:
    return attention.needed() if wanted else ~attention.needed()


_FILTERS: dict[str, Callable[[Any], Q]] = {
    "kind": lambda kinds: Q(kind__in=kinds),
    "status": lambda states: Q(state__in=states),
    "state": lambda states: Q(state__in=states),
    "worker": _ran_on,
    "created_after": lambda moment: Q(created_at__gte=moment),
    "created_before": lambda moment: Q(created_at__lt=moment),
    "resumable": _is_resumable,
    "needs_attention": _needs_attention,
    "search": lambda text: Q(name__icontains=text) | Q(id__icontains=text.lower()),
}


class AttemptQuery(StrictSerializer):
    attempt = serializers.IntegerField(
        required=False, min_value=1, max_value=2**31 - 1, help_text="Without it: all."
    )


class LogQuery(AttemptQuery):
    after = serializers.IntegerField(
        required=False, min_value=0, max_value=2**63 - 1, help_text="The `last_id` seen before."
    )
    tail = serializers.IntegerField(
        required=False, min_value=1, max_value=10_000, default=200, help_text="So many last lines."
    )


class MetricsQuery(AttemptQuery):
    name = ManyField(required=False, help_text="Several: separated by commas. Without it: all.")
    after_id = serializers.IntegerField(
        required=False,
        min_value=0,
        max_value=2**63 - 1,
        default=0,
        help_text="The `last_id` seen before: only what was written since.",
    )
    after_step = serializers.IntegerField(required=False, min_value=0, max_value=2**63 - 1)
    max_points = serializers.IntegerField(
        required=False,
        min_value=10,
        max_value=100_000,
        default=2000,
        help_text="A longer curve is thinned; its extremes stay.",
    )


class LiveQuery(StrictSerializer):
    points_after = serializers.IntegerField(required=False, min_value=0, max_value=2**63 - 1)
    log_after = serializers.IntegerField(
        required=False, min_value=0, max_value=2**63 - 1, help_text="0: the last lines."
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
        help_text="An id, `latest` or `best`; without it: the final one, else the newest.",
    )


class ExportQuery(ArtifactQuery):
    which = serializers.ChoiceField(
        choices=["last", "best"],
        required=False,
        default=None,
        allow_null=True,
        help_text="The newest or the best checkpoint; of a federated operation its state, or the "
        "model of its best completed round. Without it: the final one, else the newest.",
    )
    agent = serializers.IntegerField(
        min_value=0,
        required=False,
        default=None,
        allow_null=True,
        help_text="Of agents with separate networks: which one; by default the best evaluated.",
    )
    packed = serializers.BooleanField(
        required=False,
        default=False,
        help_text="In a zip, with the .sha256 that the other tool of its kind has beside it.",
    )


class RecipeQuery(StrictSerializer):
    kind = serializers.ChoiceField(
        choices=list(KINDS),
        required=False,
        error_messages={
            "invalid_choice": f"{{input!r}} is not a kind; allowed: {', '.join(KINDS)}"
        },
    )
