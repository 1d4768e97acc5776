"""Alerts: the committed points of running operations, read once, and an event when one is raised.

A pass reads a bounded number of new points of each operation and rule, by the index of points.
"""

from collections.abc import Sequence
from typing import NamedTuple

from django.db import transaction
from django.db.models import QuerySet

from apps.notifications import matching
from apps.notifications.conditions import CONDITIONS, AlertPoint, Settings
from apps.notifications.models import Alert, Rule
from apps.operations.id_order import oldest_first
from apps.operations.lifecycle import State
from apps.operations.models import Attempt, Event, MetricPoint, Operation

CHECK_SECONDS = 15.0  # between two passes
PAGE, MAX_PAGES = 5000, 10  # points, and pages in one pass, of each operation and rule
RAISED, ENDED = "ALERT", "ALERT_ENDED"
RULE_FIELDS = ("condition", "mode", "points", "metric")  # that decide when an alert is raised


class PointRow(NamedTuple):
    """The columns of a point that a pass reads."""

    id: int
    attempt: int
    name: str
    step: int
    value: float | None
    not_finite: str
    retired_by: int | None


def check_running() -> None:
    """Follow the points of all running operations that a rule with an alert covers."""
    rules = list(_rules())
    if not rules:
        return
    running = Operation.objects.filter(state=State.RUNNING, subtask=None).select_related("owner")
    for operation in running.iterator():
        _check_rules(rules, operation)


def check_operation(operation: Operation) -> None:
    """Follow the last points of an operation that has ended."""
    _check_rules(_rules(), operation)


def _rules() -> QuerySet[Rule]:
    return Rule.objects.filter(is_active=True).exclude(condition="").select_related("user")


def _check_rules(rules: QuerySet[Rule] | Sequence[Rule], operation: Operation) -> None:
    for rule in matching.covering(rules, operation):
        for _ in range(MAX_PAGES):
            if not _check_page(rule, operation):
                break


def _check_page(rule: Rule, operation: Operation) -> bool:
    """Follow one page of points; whether there are more."""
    alert, _ = Alert.objects.get_or_create(rule=rule, operation=operation)
    alert.rule = rule  # as it was read, to be compared with what is stored in the end
    read = _read_state(alert)
    number, alert.begun = _newest_attempt(operation)
    alert.settings = ":".join(str(getattr(rule, name)) for name in RULE_FIELDS)
    if alert.settings != read["settings"]:
        alert.is_raised = False  # it was raised by what the rule said before
    is_anew = _read_state(alert) != read
    if is_anew:
        alert.last_point_id, alert.state = 0, {}
    rows = _page(operation, alert.last_point_id)
    if not rows and not is_anew:
        return False
    condition = CONDITIONS[rule.condition]
    settings = Settings(rule.metric, rule.mode, rule.points)
    for row in rows:
        is_other = condition.of_one_attempt and row.attempt != number
        if row.retired_by is None and not is_other:
            alert.state = condition.follow(settings, alert.state, _point(row))
        alert.last_point_id = row.id
    has_more = len(rows) == PAGE
    note = condition.note(settings, alert.state)
    _store(alert, operation, read, note, was_raised=alert.is_raised, is_final=not has_more)
    return has_more


def _read_state(alert: Alert) -> dict[str, object]:
    """Return what decides from where points are read."""
    return {
        "last_point_id": alert.last_point_id,
        "begun": alert.begun,
        "settings": alert.settings,
    }


def _store(
    alert: Alert,
    operation: Operation,
    read: dict[str, object],
    note: str,
    *,
    was_raised: bool,
    is_final: bool,
) -> None:
    """Write the alert, and its event if it was raised or has ended; once among processes.

    Nothing is written if the rule was changed or switched off meanwhile.
    """
    if is_final:
        alert.is_raised = bool(note)
    with transaction.atomic():
        unchanged = Alert.objects.filter(pk=alert.pk, rule__in=_same(alert.rule), **read)
        written = unchanged.update(
            is_raised=alert.is_raised,
            state=alert.state,
            last_point_id=alert.last_point_id,
            begun=alert.begun,
            settings=alert.settings,
        )
        if not written or alert.is_raised == was_raised:
            return
        event = Event.objects.create(
            operation=operation,
            what=RAISED if alert.is_raised else ENDED,
            actor=f"rule {alert.rule.name}",
            note=note,
            attempt=operation.attempt,
        )
        if alert.is_raised:
            event.refresh_from_db(fields=["at"])
            matching.notify(alert.rule, event, operation)


def _same(rule: Rule) -> QuerySet[Rule]:
    """Return the stored rule, if it is on and its alert is unchanged."""
    fields = {name: getattr(rule, name) for name in RULE_FIELDS}
    return _rules().filter(pk=rule.pk, **fields).select_related(None)


def _page(operation: Operation, after: int) -> list[PointRow]:
    newer = oldest_first(MetricPoint.objects.all(), after, operation_id=operation.pk)
    return [PointRow(*row) for row in newer.values_list(*PointRow._fields)[:PAGE]]


def _point(row: PointRow) -> AlertPoint:
    value = float(row.not_finite or "nan") if row.value is None else row.value
    return AlertPoint(row.name, row.step, value)


def _newest_attempt(operation: Operation) -> tuple[int, str]:
    """Return its number, and a text that changes when its start retires points of earlier ones."""
    attempts = Attempt.objects.filter(operation=operation)
    number, from_step = attempts.values_list("number", "from_step").first() or (0, None)
    return number, f"{number}:{from_step}"
