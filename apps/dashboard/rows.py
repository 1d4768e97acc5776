"""One line of the list: everything it shows, from one query for all of them."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db.models import F, QuerySet
from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.dashboard import words
from apps.operations import attention
from apps.operations.lifecycle import WAITING, Reason, State
from apps.operations.models import OperationQuerySet
from apps.operations.requests import access
from apps.operations.scheduling import outlook
from apps.operations.scheduling.waiting import Wait, WaitingFor

FIELDS = (
    *outlook.FIELDS, "recipe", "name", "owner_id", "attempt", "worker_id",
    "stop_requested", "stop_requested_at", "lease_expires_at",
    "place", "unit", "step", "total_steps", "steps_per_second", "metrics",
    "created_at", "started_at", "finished_at", "self_check",
)  # fmt: skip
MAIN_ACTIONS = {"cancel": "Cancel…", "resume": "Resume…", "kill": "Kill…"}


def select(operations: OperationQuerySet) -> QuerySet[Any, Mapping[str, Any]]:
    """Return the columns of the list, without the large ones (config, traceback)."""
    rows: QuerySet[Any, Mapping[str, Any]] = access.annotated(operations).values(
        *FIELDS,
        *access.ANNOTATIONS,
        monitor=F("config__monitor"),
        error_message=F("error__message"),
        owner_name=F("owner__username"),
    )
    return rows


@dataclass(frozen=True, slots=True)
class Row:
    """What the template of a line needs, decided."""

    values: Mapping[str, Any]
    actions: list[str]
    may_submit: bool
    is_mine: bool
    wait: WaitingFor | None

    @property
    def percent(self) -> float:
        total = self.values["total_steps"]
        return min(100.0, 100.0 * self.values["step"] / total) if total else 0.0

    @property
    def is_silent(self) -> bool:
        return bool(self.values["is_silent"])

    @property
    def colour(self) -> str:
        return words.badge(self.values["state"], self.values["stop_requested"])[1]

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
            return "its worker has gone silent"
        if self.wait is not None:
            return self._waits_for(self.wait)
        if values["state"] == State.FAILED:
            return values["error_message"] or Reason(values["reason"]).label
        if values["stop_requested"]:
            return format_html("asked {}", words.moment(values["stop_requested_at"]))
        return attention.BAD_CHECKS.get(values["self_check"], "")

    def _waits_for(self, wait: WaitingFor) -> str | SafeString:
        if wait.code is Wait.PAUSED:
            return format_html("restarts {}", words.moment(self.values["not_before"], "until"))
        return words.OBSTACLES.get(wait.code, "")

    @property
    def where(self) -> str | SafeString:
        """The line under the bar: how far, and for how long still."""
        values = self.values
        if values["state"] == State.RUNNING:
            return " · ".join(part for part in (self._eta(), values["place"]) if part) or "starting"
        if values["state"] in WAITING:
            return format_html("waiting for {}", words.moment(values["queued_at"], "since"))
        if values["state"] == State.COMPLETED:
            return f"took {self._took()}"
        if values["has_checkpoint"]:
            return f"resumable · reached {values['place'] or self._step}"
        return values["place"] or "no checkpoint"

    @property
    def metric(self) -> tuple[str, str] | None:
        metrics = self.values["metrics"] or {}
        for name in (self.values["monitor"], *metrics):
            if name in metrics:
                return name, words.number(metrics[name])
        return None

    @property
    def _step(self) -> str:
        return f"{self.values['unit'] or 'step'} {self.values['step']}"

    def _eta(self) -> str:
        speed, left = self.values["steps_per_second"], self._steps_left()
        return f"ETA {words.roughly(left / speed)}" if speed and left else ""

    def _steps_left(self) -> int:
        return max(0, int(self.values["total_steps"] - self.values["step"]))

    def _took(self) -> str:
        started, finished = self.values["started_at"], self.values["finished_at"]
        if not started or not finished:
            return "—"
        return words.duration((finished - started).total_seconds())


@dataclass(frozen=True, slots=True)
class Line:
    """A row as HTML cells; equal digests need not be sent again."""

    id: str
    name: str
    html: SafeString
    digest: str


def lines(found: Sequence[Mapping[str, Any]], user: Any) -> list[Line]:
    waits = outlook.of_all(found)
    return [_line(values, user, waits.get(values["id"])) for values in found]


def _line(values: Mapping[str, Any], user: Any, wait: WaitingFor | None) -> Line:
    is_mine = values["owner_id"] == user.pk
    may_submit = access.may_create(user)
    row = Row(values, access.allowed_actions(values, user), may_submit, is_mine, wait)
    html = render_to_string("dashboard/operations/row.html", {"row": row})
    return Line(values["id"], values["name"], html, digest(html))


def digest(html: str) -> str:
    """Return a short name for exactly this text."""
    return f"{zlib.crc32(html.encode()):08x}"


def heartbeat_at(lease_expires_at: Any) -> Any:
    """Return when the lease was last renewed, which is when its worker was last heard of."""
    if lease_expires_at is None:
        return None
    return lease_expires_at - timedelta(seconds=settings.THRESHOLDS.orphan_timeout_seconds)
