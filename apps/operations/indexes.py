"""Indexes and constraints of operations, and the conditions that queries share with them."""

from typing import Final

from django.db import models
from django.db.models import Q

from apps.operations.lifecycle import State

LISTED: Final = Q(is_subtask=False, archived_at__isnull=True)  # what lists show by default


def is_(column: str, condition: str) -> Q:
    """Return the condition on a column, written out: `is_("state", "= 'FAILED'")`.

    SQLite uses a partial index only for the condition of the index itself, not for a parameter.
    """
    template = f"%(expressions)s {condition}"
    field = models.BooleanField()
    return Q(models.Func(models.F(column), template=template, output_field=field))


IS_WAITING: Final = is_("state", "IN ('PENDING', 'RESUMING')")
IS_GANG: Final = is_("nodes", "> 1")  # several workers compute it at once
IS_ACTIVE: Final = is_("state", "IN ('PENDING', 'RESUMING', 'RUNNING')")
IS_STOPPED: Final = is_("state", "IN ('CANCELLED', 'FAILED')")  # RESUMABLE, with a checkpoint
LACKS_VALUES: Final = Q(values_of_attempt__lt=models.F("attempt"))  # it runs, or has just ended
NEEDS_ATTENTION: Final = (
    is_("state", "= 'FAILED'")
    | is_("self_check", "IN ('differs', 'not_loaded')")
    | is_("concerns", "> ''")
)  # unless acknowledged

_NEWEST = ("-created_at", "-id")
# In the conditions below as in those above: the order of alternatives counts.
_CONCERNED = Q(state="FAILED") | Q(self_check__in=["differs", "not_loaded"]) | Q(concerns__gt="")

# SQLite reads an index alone only where that has the columns of its own condition, too.
_OF_LISTED = ("archived_at", "is_subtask")

INDEXES: Final = [
    models.Index(fields=_NEWEST, name="operation_newest"),
    # Names and ids are searched, and states are counted, without reading rows.
    models.Index(
        fields=[*_NEWEST, "name", "state", *_OF_LISTED], condition=LISTED, name="operation_listed"
    ),
    models.Index(
        fields=["state", *_NEWEST, "kind", "owner", *_OF_LISTED],
        condition=LISTED,
        name="operation_listed_state",
    ),
    models.Index(
        fields=["kind", *_NEWEST, *_OF_LISTED], condition=LISTED, name="operation_listed_kind"
    ),
    models.Index(
        fields=["owner", *_NEWEST, *_OF_LISTED], condition=LISTED, name="operation_listed_owner"
    ),
    # Few operations, in the order of the list.
    models.Index(
        fields=[*_NEWEST, "state", *_OF_LISTED],
        condition=LISTED & Q(state__in=["PENDING", "RESUMING", "RUNNING"]),
        name="operation_listed_active",
    ),
    models.Index(
        fields=[*_NEWEST, "state", "kind", "owner", *_OF_LISTED],
        condition=LISTED & Q(state__in=["CANCELLED", "FAILED"]),
        name="operation_listed_stopped",
    ),
    models.Index(
        fields=[
            *_NEWEST,
            "state",
            "self_check",
            "concerns",
            "acknowledged_at",
            "kind",
            "owner",
            *_OF_LISTED,
        ],
        condition=LISTED & _CONCERNED & Q(acknowledged_at__isnull=True),
        name="operation_attention",
    ),
    models.Index(fields=["state", *_NEWEST], name="operation_state"),
    models.Index(fields=["kind", *_NEWEST], name="operation_kind"),
    models.Index(
        fields=["state", "id"],
        condition=LACKS_VALUES,
        name="operation_lacks_values",
    ),
    models.Index(fields=["concerns"], condition=Q(concerns__gt=""), name="operation_concerns"),
    models.Index(
        fields=["kind", "queue", "-priority", "queued_at", "id"],
        condition=Q(state__in=["PENDING", "RESUMING"]),
        name="operation_next",
    ),
    models.Index(
        fields=["not_before"],
        condition=Q(state__in=["PENDING", "RESUMING"], nodes__gt=1),
        name="operation_gangs",
    ),
    models.Index(
        fields=["lease_expires_at"], condition=Q(state="RUNNING"), name="operation_leases"
    ),
    models.Index(
        fields=["owner", "is_subtask", "state"],
        condition=Q(state__in=["PENDING", "RESUMING", "RUNNING"]),
        name="operation_active_of",
    ),
    models.Index(
        fields=["project", *_NEWEST], condition=Q(project__gt=""), name="operation_project"
    ),
    models.Index(fields=_NEWEST, condition=Q(archived_at__isnull=False), name="operation_archived"),
]

CONSTRAINTS: Final = [
    models.CheckConstraint(condition=Q(state__in=State.values), name="operation_state_is_known"),
    models.CheckConstraint(
        condition=~Q(state=State.RUNNING) | Q(lease_expires_at__isnull=False),
        name="running_implies_a_lease",
    ),
    models.UniqueConstraint(
        fields=["owner", "idempotency_key"],
        condition=~Q(idempotency_key=""),
        name="one_operation_per_idempotency_key",
    ),
    models.UniqueConstraint(
        fields=["study", "fold"], condition=Q(is_test=True), name="one_test_per_fold"
    ),
]
