"""What an open page of an operation learns: all of it by its request, its progress by updates.

Updates answer for many pages at once, with one query for each table and without a request. They
are for the same reader, in the same time zone, as the request that each page was opened with, and
draw the parts that a running operation changes again and again. The request of a page is repeated
whenever anything else has changed, and every few seconds: see `trainops.gateway.live`.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Any
from urllib.parse import urlencode

from django.db import close_old_connections
from django.http import JsonResponse
from django.utils import timezone
from django.utils.safestring import SafeString

from apps.checkpoints.models import Checkpoint
from apps.dashboard import menu, parts, points
from apps.dashboard.figures import BestPoint, better
from apps.dashboard.parts import Subject
from apps.operations import media_queries
from apps.operations.attempts import branches
from apps.operations.lifecycle import State
from apps.operations.models import Operation
from apps.operations.points import metric_queries
from apps.operations.requests.access import Person
from apps.operations.versions import SECONDS, OperationProgress
from trainops.gateway.live import PageUpdate
from trainops.statement_timeout import at_most


@dataclass(frozen=True, slots=True)
class OperationPage:
    """What an open page shows, and to whom."""

    operation_id: str
    reader: Person
    time_zone: tzinfo
    digests: Mapping[str, str]  # of its parts
    last_point: int  # id
    bests: Sequence[BestPoint]
    standing: Mapping[int, int | None]
    media: str

    @property
    def query(self) -> str:
        """The query that asks for what changes afterwards."""
        have = ",".join(f"{name}:{digest}" for name, digest in self.digests.items())
        return urlencode({"have": have, "points": self.last_point})


def opened(
    subject: Subject, digests: Mapping[str, str], point_id: int
) -> tuple[JsonResponse, OperationPage]:
    """Return what is new to a page with these parts and points, and what it shows then."""
    # Points first: the best ones, which updates go on from, are then no older.
    new_points = points.after(subject.operation.pk, point_id)
    drawn = parts.draw(subject)
    page = OperationPage(
        operation_id=subject.operation.pk,
        reader=subject.user,
        time_zone=timezone.get_current_timezone(),
        digests={name: digest for name, (_, digest) in drawn.items()},
        last_point=new_points["last"],
        bests=subject.bests,
        standing=branches.standing(subject.operation.pk),
        media=media_queries.version(subject.operation.pk),
    )
    log = metric_queries.newest_of_log(subject.operation.pk)
    changed = _changed(drawn, digests)
    return JsonResponse(_content(subject.operation, changed, new_points, page, log)), page


def updates(
    changed: Sequence[tuple[OperationPage, OperationProgress]],
) -> list[PageUpdate | None]:
    """Return what is new to pages, in a thread of the caller's own; None: ask by its request."""
    close_old_connections()
    with at_most(SECONDS):
        return current(changed)


def current(
    changed: Sequence[tuple[OperationPage, OperationProgress]],
) -> list[PageUpdate | None]:
    """Return what is new to pages, in one query for each table."""
    ids = {page.operation_id for page, _ in changed}
    running = Operation.objects.filter(state=State.RUNNING).prefetch_related("attempts")
    operations = running.in_bulk(ids)
    checkpoints: dict[str, list[Checkpoint]] = defaultdict(list)
    for each in Checkpoint.objects.filter(operation_id__in=ids).newest_first():
        checkpoints[each.operation_id].append(each)
    curves = metric_queries.curves_after({(it.operation_id, it.last_point) for it, _ in changed})
    answers: list[PageUpdate | None] = []
    for page, progress in changed:
        operation = operations.get(page.operation_id)
        found = curves.get((page.operation_id, page.last_point))
        if operation is None or found is None:
            answers.append(None)
            continue
        subject = Subject(operation, page.reader)
        subject.checkpoints = checkpoints[page.operation_id]
        answers.append(_update(page, subject, found, progress.newest_log or 0))
    return answers


def _update(
    page: OperationPage, subject: Subject, found: metric_queries.Curves, log: int
) -> PageUpdate:
    subject.bests = better(subject.operation, page.bests, found.series)
    with timezone.override(page.time_zone):
        drawn = parts.draw(subject, is_whole=False)
    now = replace(
        page,
        digests={**page.digests, **{name: digest for name, (_, digest) in drawn.items()}},
        last_point=found.last_id,
        bests=subject.bests,
    )
    changed = _changed(drawn, page.digests)
    content = _content(subject.operation, changed, points.columns(found), now, log)
    return PageUpdate(JsonResponse(content).content, now.query, now)


def _changed(
    drawn: Mapping[str, tuple[SafeString, str]], digests: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    return {
        name: {"html": html, "digest": digest}
        for name, (html, digest) in drawn.items()
        if digests.get(name) != digest
    }


def _content(
    operation: Operation,
    changed: Mapping[str, Mapping[str, str]],
    new_points: points.Points,
    page: OperationPage,
    log: int,
) -> dict[str, Any]:
    return {
        "state": operation.state,
        "menu": menu.menu_counts(),
        "percent": operation.percent,
        "settled": parts.is_settled(operation),
        "parts": changed,
        "points": new_points,
        "standing": page.standing,
        "log": log,
        "media": page.media,
    }
