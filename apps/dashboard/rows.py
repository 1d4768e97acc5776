"""One line of the list: everything it shows, from one query for all of them."""

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache

from django.conf import settings
from django.db.models import F, QuerySet
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.dashboard import formatting
from apps.operations import attention
from apps.operations.api.rows import tags_of
from apps.operations.attention import Attention
from apps.operations.lifecycle import WAITING, State, reason_label
from apps.operations.models import Operation, OperationQuerySet
from apps.operations.requests import access
from apps.operations.requests.access import AccessRow, Person
from apps.operations.scheduling import queue_status
from apps.operations.scheduling.blocking import BlockingReason, QueueStatus
from apps.operations.scheduling.queue_status import NeedRow
from apps.operations.search.by_value import leading
from apps.operations.search.language import unquoted
from apps.operations.search.values import named
from trainops import progress

FIELDS = (
    *queue_status.FIELDS, "recipe", "name", "owner_id", "attempt", "worker_id",
    "stop_requested", "stop_requested_at", "lease_expires_at",
    "place", "unit", "step", "total_steps", "steps_per_second", "metrics",
    "created_at", "started_at", "finished_at", "self_check", "concerns", "acknowledged_at",
    "is_favourite",
)  # fmt: skip
ADDED = "column_"  # and a number: names of additional columns in a query
TIMES = re.compile(r"(<time [^>]*>)[^<]*")
NUM_REMEMBERED = 1000  # rendered rows, of about 5 KB
MAIN_ACTIONS = {"cancel": "Cancel…", "resume": "Resume…", "kill": "Kill…"}


class ListColumns(AccessRow, NeedRow):
    """The columns that `select` reads."""

    kind: str
    queue: str
    priority: int
    name: str
    project: str
    reason: str
    stop_requested_at: datetime | None
    not_before: datetime | None
    place: str
    unit: str
    step: int
    total_steps: int
    steps_per_second: float | None
    metrics: dict[str, float | str]  # text where not finite
    created_at: datetime
    queued_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    self_check: str
    concerns: str
    acknowledged_at: datetime | None
    is_favourite: bool
    monitor: str | None
    error_message: str | None


def select(
    operations: OperationQuerySet, columns: Sequence[str] = ()
) -> QuerySet[Operation, ListColumns]:
    """Return the columns of the list, without the large ones (config, traceback).

    `columns`: metrics, config fields and columns that are shown in addition.
    """
    added = {f"{ADDED}{index}": named(name).text for index, name in enumerate(columns)}
    rows: QuerySet[Operation, ListColumns] = access.annotated(operations).values(
        *FIELDS,
        *access.ANNOTATIONS,
        monitor=F("config__monitor"),
        error_message=F("error__message"),
        owner_name=F("owner__username"),
        **added,
    )
    return rows


def read(
    columns: Sequence[str] = (), *, is_scan: bool = True, sort: str = ""
) -> Callable[..., QuerySet[Operation, ListColumns]]:
    """Return what reads the rows at some positions of an order, for `pages`.

    is_scan: the conditions are compared with many operations that are not found.
    sort: the name of the order, if it has one.
    """
    if sort:
        return lambda found, by, start, stop: select(
            leading(found, sort, stop).window(by, start, stop), columns
        )
    if is_scan:
        return lambda found, by, start, stop: select(found.window(by, start, stop), columns)
    return lambda found, by, start, stop: select(found, columns).order_by(*by)[start:stop]


@dataclass(frozen=True, slots=True)
class OperationRow:
    """What the template of a line needs, decided."""

    values: ListColumns
    actions: list[str]
    may_submit: bool
    is_mine: bool
    wait: QueueStatus | None
    tags: Sequence[str] = ()
    columns: Sequence[str] = ()
    removed: Sequence[str] = ()

    @property
    def added(self) -> list[tuple[str, str]]:
        """The name and the value of each additional column."""
        values: Mapping[str, object] = dict(self.values)
        return [
            (unquoted(name), _shown(values[f"{ADDED}{index}"]))
            for index, name in enumerate(self.columns)
        ]

    @property
    def percent(self) -> float:
        return progress.percent(self.values["step"], self.values["total_steps"])

    @property
    def is_silent(self) -> bool:
        return bool(self.values.get("is_silent"))

    @property
    def colour(self) -> str:
        return formatting.badge(self.values["state"], self.values["stop_requested"])[1]

    @property
    def main_action(self) -> tuple[str, str] | None:
        """The one thing to do next: (action, what its button says)."""
        for action, label in MAIN_ACTIONS.items():
            if action in self.actions:
                return action, label
        return None

    @property
    def why(self) -> str | SafeString:
        """The line under the state: why it is in it, where that is not plain."""
        values = self.values
        if self.is_silent:
            return "the worker stopped responding"
        if self.wait is not None:
            return self._waits_for(self.wait) + self._also()
        if values["state"] == State.FAILED:
            return values["error_message"] or reason_label(values["reason"])
        if values["stop_requested"]:
            return format_html("requested {}", formatting.moment(values["stop_requested_at"]))
        return next((each.label for each in attention.reasons(values)), "")

    def _also(self) -> str:
        """Return that a waiting operation is in a crash loop."""
        is_loop = Attention.CRASH_LOOPING in self.values["concerns"]
        return f" · {Attention.CRASH_LOOPING.label}" if is_loop else ""

    def _waits_for(self, wait: QueueStatus) -> str | SafeString:
        if wait.code is BlockingReason.PAUSED:
            return format_html("restarts {}", formatting.moment(self.values["not_before"], "until"))
        return formatting.OBSTACLES.get(wait.code, "")

    @property
    def where(self) -> str | SafeString:
        """The line under the bar: how far, and for how long still."""
        values = self.values
        if values["state"] == State.RUNNING:
            return " · ".join(part for part in (self._eta(), values["place"]) if part) or "starting"
        if values["state"] in WAITING:
            return format_html("waiting for {}", formatting.moment(values["queued_at"], "since"))
        if values["state"] == State.COMPLETED:
            return f"took {self._took()}"
        if values.get("has_checkpoint"):
            return f"resumable · reached {values['place'] or self._step}"
        return values["place"] or "no checkpoint"

    @property
    def metric(self) -> tuple[str, str] | None:
        metrics = self.values["metrics"] or {}
        for name in (self.values["monitor"], *metrics):
            if name in metrics:
                return name, formatting.number(metrics[name])
        return None

    @property
    def _step(self) -> str:
        return f"{self.values['unit'] or 'step'} {self.values['step']}"

    def _eta(self) -> str:
        values = self.values
        seconds = progress.eta_seconds(
            values["step"], values["total_steps"], values["steps_per_second"]
        )
        return f"ETA {formatting.roughly(seconds)}" if seconds else ""

    def _took(self) -> str:
        started, finished = self.values["started_at"], self.values["finished_at"]
        if not started or not finished:
            return "—"
        return formatting.duration((finished - started).total_seconds())


@dataclass(frozen=True, slots=True)
class RenderedRow:
    """A row as HTML cells; equal digests need not be sent again."""

    id: str
    name: str
    html: SafeString
    digest: str


def lines(
    found: Sequence[ListColumns],
    user: Person,
    columns: Sequence[str] = (),
    removed: Sequence[str] = (),
) -> list[RenderedRow]:
    """Return the rows as HTML. columns, removed: see `Filters`."""
    waits = queue_status.of_all(found)
    tags = tags_of(values["id"] for values in found)
    may_submit = access.may_create(user)
    return [
        _line(
            OperationRow(
                values,
                access.allowed_actions(values, user),
                may_submit,
                is_mine=values["owner_id"] == user.pk,
                wait=waits.get(values["id"]),
                tags=tags[values["id"]],
                columns=columns,
                removed=removed,
            )
        )
        for values in found
    ]


@dataclass(frozen=True, slots=True)
class _Shown:
    """A row that a reader sees. Equal ones have equal HTML, but for the ages in <time>s."""

    text: str
    time_zone: str
    row: OperationRow = field(compare=False)


def _line(row: OperationRow) -> RenderedRow:
    line = rendered(_Shown(repr(row), timezone.get_current_timezone_name(), row))
    return replace(line, html=formatting.as_of_now(line.html))


@lru_cache(NUM_REMEMBERED)
def rendered(shown: _Shown) -> RenderedRow:
    row = shown.row
    # Each name once: the template looks names up faster than attributes.
    context = {
        "v": row.values,
        "tags": row.tags,
        "is_mine": row.is_mine,
        "may_submit": row.may_submit,
        "colour": row.colour,
        "percent": row.percent,
        "why": row.why,
        "where": row.where,
        "metric": row.metric,
        "action": row.main_action,
        "added": row.added,
        "removed": row.removed,
    }
    html = render_to_string("dashboard/operations/row.html", context)
    return RenderedRow(row.values["id"], row.values["name"], html, digest(html))


def _shown(value: object) -> str:
    """Return a value of an additional column; the database gives those of JSON as text."""
    if isinstance(value, str):
        try:
            return formatting.number(float(value))
        except ValueError:
            return value
    return formatting.number(value)


def digest(html: str) -> str:
    """Return a short name for this text, whatever its <time>s say: the page keeps those true."""
    steady = TIMES.sub(r"\1", html)
    return f"{zlib.crc32(steady.encode()):08x}"


def heartbeat_at(lease_expires_at: datetime | None) -> datetime | None:
    """Return when the lease was last renewed, which is when its worker was last heard of."""
    if lease_expires_at is None:
        return None
    return lease_expires_at - timedelta(seconds=settings.THRESHOLDS.orphan_timeout_seconds)
