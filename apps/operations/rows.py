"""Operations as the API shows them: made of `values()` by plain functions, for lists must be quick.

The serializers describe these rows, for the OpenAPI document; the tests hold both together.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from django.db.models import QuerySet

from apps.operations import attention
from apps.operations.lifecycle import State
from apps.operations.models import Operation, Tag
from apps.operations.requests import access
from apps.operations.requests.access import Person
from apps.operations.scheduling import outlook
from apps.operations.scheduling.waiting import WaitingFor

ROW_FIELDS = (
    "id", "kind", "recipe", "name", "priority", "queue", "state", "reason", "stop_requested",
    "attempt", "worker_id", "restarts_used", "not_before", "unit", "place", "step", "total_steps",
    "steps_per_second", "metrics", "created_at", "queued_at", "started_at", "finished_at",
    "progressed_at", "self_check",
)  # fmt: skip
DETAIL_FIELDS = (
    "config", "config_given", "config_hash", "stop_requested_at", "stop_requested_by",
    "lease_expires_at", "resume_from", "forked_from", "result", "error",
)  # fmt: skip
LIVE_FIELDS = (
    "id", "state", "reason", "stop_requested", "attempt", "worker_id", "not_before", "unit",
    "place", "step", "total_steps", "steps_per_second", "metrics", "started_at", "finished_at",
    "progressed_at", "self_check",
)  # fmt: skip


def rows_of(operations: QuerySet[Operation], fields: Iterable[str]) -> QuerySet[Any]:
    """Return the values that `described` and `described_all` work on; one query, no instances."""
    rows: QuerySet[Any] = access.annotated(operations).values(*fields, *_INNER)
    return rows


def described_all(rows: list[dict[str, Any]], user: Person) -> list[dict[str, Any]]:
    """Return one page as the API shows it; one query more for all tags, two if anything waits."""
    return _described_all(rows, user, outlook.of_all(rows))


def _described_all(
    rows: list[dict[str, Any]], user: Person, waits: Mapping[str, WaitingFor | None]
) -> list[dict[str, Any]]:
    tags = tags_of(row["id"] for row in rows)
    return [
        described(row, user)
        | {"tags": tags[row["id"]], "waiting_for": _shown(waits.get(row["id"]))}
        for row in rows
    ]


def _shown(wait: WaitingFor | None) -> dict[str, str] | None:
    return {"code": wait.code, "message": wait.message} if wait else None


def described(row: dict[str, Any], user: Person) -> dict[str, Any]:
    """Return a row of `rows_of` with all that follows from it alone.

    `id` and `state` are older names of `operation_id` and `status`, and stay for older clients.
    """
    described = {"operation_id": row["id"], "status": row["state"]}
    described |= {name: value for name, value in row.items() if name not in _INNER}
    described["owner"] = row["owner__username"]
    described["part_of"] = row["part__server_id"]
    described["percent"] = _percent(row)
    described["eta_seconds"] = _eta_seconds(row)
    described["needs_attention"] = attention.is_needed(row)
    described["is_resumable"] = access.is_resumable(row)
    described["allowed_actions"] = access.allowed_actions(row, user)
    return described


def tags_of(operation_ids: Iterable[str]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    tags = Tag.objects.filter(operation_id__in=list(operation_ids)).order_by("name")
    for operation_id, name in tags.values_list("operation_id", "name"):
        found[operation_id].append(name)
    return found


def detail(operation_id: str, user: Person) -> dict[str, Any] | None:
    """Return one operation with everything there is to say about it; None where it is not."""
    mine = Operation.objects.filter(pk=operation_id)
    row = rows_of(mine, ROW_FIELDS + DETAIL_FIELDS).first()
    if row is None:
        return None
    return _described_all([row], user, {operation_id: outlook.of(row)})[0]


_INNER = (
    "owner_id", "owner__username", *access.ANNOTATIONS, *outlook.NEED_FIELDS, "part__server_id",
)  # fmt: skip


def _percent(row: Mapping[str, Any]) -> float:
    total = row["total_steps"]
    return round(100.0 * row["step"] / total, 3) if total else 0.0


def _eta_seconds(row: Mapping[str, Any]) -> float | None:
    if row["state"] != State.RUNNING or not row["steps_per_second"]:
        return None
    return float(max(0, row["total_steps"] - row["step"]) / row["steps_per_second"])
