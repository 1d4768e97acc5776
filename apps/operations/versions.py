"""Versions of what pages show, for event streams: cheap values that differ after a change.

They say when a page is to be rendered anew, not what changed. What no version sees (a worker that
comes and ends the wait of a queued operation) is seen at the next refresh, seconds later.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, cast

from django.db import close_old_connections
from django.db.models import Count, Max, OuterRef, QuerySet, Subquery, Sum

from apps.checkpoints.models import Checkpoint
from apps.operations.id_order import newest_first
from apps.operations.lifecycle import State
from apps.operations.models import Event, LogChunk, Media, MetricPoint, Operation
from trainops.gateway.live import Version
from trainops.http import closing
from trainops.statement_timeout import at_most

SECONDS = 5.0  # the longest wait for the database
OPERATIONS = "operations"  # topic of lists: any operation
_PREFIX = "operation "
_SEVERAL = "several operations "
_COLUMNS = (
    "state", "stop_requested", "attempt", "worker_id",
    "concerns", "self_check", "acknowledged_at", "archived_at", "name",
)  # fmt: skip


class OperationProgress(NamedTuple):
    """The part of a version that a running operation changes again and again."""

    step: int
    place: str
    progressed_at: datetime | None
    newest_point: int | None
    newest_log: int | None


def topic_of(operation_id: str) -> str:
    """Return the topic of one operation."""
    return f"{_PREFIX}{operation_id}"


def topic_of_several(operation_ids: Iterable[str]) -> str:
    """Return the topic of operations that are shown together."""
    return f"{_SEVERAL}{','.join(operation_ids)}"


def versions(topics: Collection[str]) -> Mapping[str, Version]:
    """Return the versions of topics, in a thread of the caller's own."""
    close_old_connections()
    with at_most(SECONDS):
        return current(topics)


def current(topics: Collection[str]) -> Mapping[str, Version]:
    """Return the versions of topics: one query for all operations, two for lists."""
    several = {topic: _ids_of(topic) for topic in topics if topic.startswith(_SEVERAL)}
    ids = {topic.removeprefix(_PREFIX) for topic in topics if topic.startswith(_PREFIX)}
    ids.update(*several.values())
    found = dict(_of_operations(ids)) if ids else {}
    for topic, together in several.items():
        found[topic] = Version([found.get(topic_of(each)) for each in together])
    if OPERATIONS in topics:
        found[OPERATIONS] = Version(_of_all())
    return found


def of_points(operation_ids: Sequence[str]) -> list[object]:
    """Return what differs after a new point, or a change of anything but the progress."""
    found = dict(_of_operations(operation_ids))
    return [_without_progress(found.get(topic_of(each))) for each in operation_ids]


def _without_progress(version: Version | None) -> object:
    if version is None:
        return None
    progress = cast(OperationProgress, version.progress)
    return version.whole, progress.newest_point


def _ids_of(topic: str) -> list[str]:
    return topic.removeprefix(_SEVERAL).split(",")


def is_closing() -> bool:
    """Whether the web server is about to end."""
    return closing.is_announced()


def _of_operations(ids: Collection[str]) -> Iterable[tuple[str, Version]]:
    rows = Operation.objects.filter(pk__in=ids).order_by()
    counted = rows.values_list(
        "pk",
        "step",
        "place",
        "progressed_at",
        _newest(MetricPoint.objects),
        _newest(LogChunk.objects),
        *_COLUMNS,
        _newest(Media.objects),
        _number(Event.objects),
        _number(Checkpoint.objects),
    )
    for pk, step, place, progressed_at, point, log, *others in counted:
        progress = OperationProgress(step, place, progressed_at, point, log)
        yield topic_of(pk), Version(others, progress)


def _of_all() -> object:
    newest = Event.objects.order_by("-pk").values_list("pk", flat=True).first()
    running = Operation.objects.filter(state=State.RUNNING).order_by()
    return newest, running.aggregate(n=Count("pk"), at=Max("progressed_at"), steps=Sum("step"))


def _newest(rows: Any) -> Subquery:
    """Return the highest id of the operation's rows: one look into their index."""
    mine: QuerySet[Any] = newest_first(rows, operation_id=OuterRef("pk"))
    return Subquery(mine.values("id")[:1])


def _number(rows: Any) -> Subquery:
    """Return how many rows the operation has; they are few."""
    mine: QuerySet[Any] = rows.filter(operation_id=OuterRef("pk")).order_by()
    return Subquery(mine.values("operation_id").annotate(number=Count("pk")).values("number"))
