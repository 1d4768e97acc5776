"""Serialize operations for the API, from `values()` by plain functions, so that lists are fast.

The serializers describe these rows, for the OpenAPI document; the tests hold both together.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, cast

from django.db.models import F

from apps.operations import attention
from apps.operations.lifecycle import State
from apps.operations.models import Operation, OperationQuerySet, Tag
from apps.operations.requests import access
from apps.operations.requests.access import AccessRow, Person
from apps.operations.scheduling import queue_status
from apps.operations.scheduling.blocking import QueueStatus
from apps.operations.scheduling.queue_status import NeedRow
from trainops import progress

ROW_FIELDS = (
    "id", "kind", "recipe", "name", "priority", "queue", "state", "reason", "stop_requested",
    "attempt", "worker_id", "restarts_used", "not_before", "unit", "place", "step", "total_steps",
    "steps_per_second", "metrics", "created_at", "queued_at", "started_at", "finished_at",
    "progressed_at", "self_check", "project", "is_favourite", "archived_at", "acknowledged_at",
    "acknowledgement", "revision", "monitor",
)  # fmt: skip
DETAIL_FIELDS = (
    "config", "config_given", "config_hash", "stop_requested_at", "stop_requested_by",
    "lease_expires_at", "resume_from", "forked_from", "result", "error", "notes",
)  # fmt: skip
LIVE_FIELDS = (
    "id", "state", "reason", "stop_requested", "attempt", "worker_id", "not_before", "unit",
    "place", "step", "total_steps", "steps_per_second", "metrics", "started_at", "finished_at",
    "progressed_at", "self_check", "acknowledged_at",
)  # fmt: skip


class LiveRow(AccessRow):
    """What `rows_of` reads for LIVE_FIELDS, except what an operation needs."""

    reason: str
    attempt: int
    worker_id: str
    not_before: datetime | None
    unit: str
    place: str
    step: int
    total_steps: int
    steps_per_second: float | None
    metrics: dict[str, float | str]  # text where not finite
    started_at: datetime | None
    finished_at: datetime | None
    progressed_at: datetime | None
    self_check: str
    concerns: str
    acknowledged_at: datetime | None
    owner__username: str | None
    subtask__parent_id: str | None


class ListRow(LiveRow, NeedRow):
    """What `rows_of` reads for ROW_FIELDS."""

    kind: str
    recipe: str
    name: str
    project: str
    priority: int
    queue: str
    restarts_used: int
    created_at: datetime
    queued_at: datetime
    monitor: str | None


@cache
def rows_of(*fields: str) -> OperationQuerySet:
    """Return the values that `described` and `described_all` work on, of all operations.

    They are a LiveRow for LIVE_FIELDS, a ListRow for ROW_FIELDS. Composed once, so a request only
    adds its conditions.
    """
    annotated = access.annotated(Operation.objects.all()).annotate(monitor=F("config__monitor"))
    rows: Any = annotated.values(*fields, *_INNER)
    return cast(OperationQuerySet, rows)


def described_all(rows: Sequence[ListRow], user: Person) -> list[dict[str, object]]:
    """Return one page as the API shows it; one query more for all tags, two if anything waits."""
    return _described_all(rows, user, queue_status.of_all(rows))


def _described_all(
    rows: Sequence[ListRow], user: Person, waits: Mapping[str, QueueStatus | None]
) -> list[dict[str, object]]:
    tags = tags_of(row["id"] for row in rows)
    found = [described(row, user) for row in rows]
    for row in found:
        operation_id = cast(str, row["operation_id"])
        row["tags"] = tags[operation_id]
        row["waiting_for"] = _shown(waits.get(operation_id))
    return found


def _shown(wait: QueueStatus | None) -> dict[str, str] | None:
    return {"code": wait.code, "message": wait.message} if wait else None


def described(row: LiveRow, user: Person) -> dict[str, object]:
    """Return a row of `rows_of` with all that follows from it alone.

    `id` and `state` are older names of `operation_id` and `status`, and stay for older clients.
    """
    described: dict[str, object] = {"operation_id": row["id"], "status": row["state"]}
    described |= row
    for name in _INNER:
        described.pop(name, None)
    described["owner"] = row["owner__username"]
    described["part_of"] = row["subtask__parent_id"]
    described["percent"] = progress.percent(row["step"], row["total_steps"])
    described["eta_seconds"] = _eta_seconds(row)
    reasons = attention.reasons(row)
    described["needs_attention"] = bool(reasons) and row["acknowledged_at"] is None
    described["attention"] = [
        {"code": each.value, "message": each.label, "next_step": attention.NEXT_STEPS[each]}
        for each in reasons
    ]
    described["is_resumable"] = access.is_resumable(row)
    described["allowed_actions"] = access.allowed_actions(row, user)
    return described


def tags_of(operation_ids: Iterable[str]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    tags = Tag.objects.filter(operation_id__in=list(operation_ids)).order_by("name")
    for operation_id, name in tags.values_list("operation_id", "name"):
        found[operation_id].append(name)
    return found


def detail(operation_id: str, user: Person) -> dict[str, object] | None:
    """Return one operation with everything there is to say about it; None where it is not."""
    rows: Any = rows_of(*ROW_FIELDS, *DETAIL_FIELDS).filter(pk=operation_id)
    row: ListRow | None = rows.first()
    if row is None:
        return None
    return _described_all([row], user, {operation_id: queue_status.of(row)})[0]


_INNER = (
    "owner_id", "owner__username", "subtask__parent_id", "concerns",
    *access.ANNOTATIONS, *queue_status.NEED_FIELDS,
)  # fmt: skip


def _eta_seconds(row: LiveRow) -> float | None:
    if row["state"] != State.RUNNING:
        return None
    return progress.eta_seconds(row["step"], row["total_steps"], row["steps_per_second"])
