"""Who may do what with an operation: shown to clients, and enforced by API, pages and admin.

A viewer reads. An operator creates, and stops, resumes and deletes what is their own. An admin may
do everything. The state has its say, too: what it does not allow now is not offered.
"""

from enum import StrEnum
from typing import NotRequired, TypedDict

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import BooleanField, Exists, ExpressionWrapper, OuterRef, Q, QuerySet

from apps.checkpoints.models import Checkpoint
from apps.operations.errors import Forbidden
from apps.operations.ids import is_subtask
from apps.operations.lifecycle import ACTIVE, RESUMABLE, State
from apps.operations.models import Operation, Study
from trainops.clock import DatabaseNow
from trainops.http.roles import Role, has_role, role_of

ANNOTATIONS = ("has_checkpoint", "is_silent")  # the names that `annotated` adds
Person = AbstractBaseUser | AnonymousUser


class AccessRow(TypedDict):
    """The columns of an operation that decide on actions; the last two are ANNOTATIONS."""

    id: str
    owner_id: int | None
    state: str
    stop_requested: str
    has_checkpoint: NotRequired[bool | None]
    is_silent: NotRequired[bool | None]


class Action(StrEnum):
    CANCEL = "cancel"
    KILL = "kill"
    RESUME = "resume"
    DELETE = "delete"


def allowed_actions(operation: Operation | AccessRow, user: Person) -> list[str]:
    """Return what `user` may do with the operation now, as the values of Action.

    `operation` is a row, or its `values()`. Where those come from `annotated`, nothing is asked of
    the database but the user's role, once a request.
    """
    row = _row(operation)
    if is_subtask(row["id"]) or not may_change(row["owner_id"], user):
        return []
    return [action.value for action in Action if _is_possible(action, row)]


def why_not(action: str, operation: Operation, user: Person) -> str:
    """Return why `user` cannot do this to the operation now; "" if they can."""
    if action in allowed_actions(operation, user):
        return ""
    if not may_change(operation.owner_id, user):
        owner = operation.owner.get_username() if operation.owner else "a deleted user"
        return f"it belongs to {owner}"
    if is_subtask(operation.pk):
        return "its parent operation manages it"
    if action == "resume" and operation.state in ("FAILED", "CANCELLED"):
        return "it has no checkpoint to resume from"
    if operation.stop_requested:
        return "it is already being stopped"
    if action == "delete":
        return f"it is {operation.state.lower()}: cancel it first"
    return f"it is {operation.state.lower()}"


def require(operation: Operation, user: Person, action: Action | str) -> None:
    """Let `user` do this to the operation, as far as roles go; its state is the services' to judge.

    Raises:
        Forbidden: the role does not suffice, or the operation belongs to another person.
    """
    _require(operation, user, f"{action} only your own operations")


def require_study(study: Study, user: Person, action: str) -> None:
    """Let `user` do this to the study and its operations, as far as roles go. Raises Forbidden."""
    _require(study, user, f"{action} only your own studies")


def _require(owned: Operation | Study, user: Person, only: str) -> None:
    if may_change(owned.owner_id, user):
        return
    role = role_of(user)
    if role is not None and role.includes(Role.OPERATOR):
        owner = owned.owner.get_username() if owned.owner else "a deleted user"
        raise Forbidden(f"You can {only}; this one belongs to {owner}. Ask its owner or an admin.")
    raise Forbidden(f"This requires the role operator; your role is {role or 'none'}.")


def may_create(user: Person) -> bool:
    return has_role(user, Role.OPERATOR)


def may_change(owner_id: int | None, user: Person) -> bool:
    """An operator what is their own, an admin everything."""
    if has_role(user, Role.ADMIN):
        return True
    return owner_id is not None and owner_id == user.pk and has_role(user, Role.OPERATOR)


def annotated(operations: QuerySet[Operation]) -> QuerySet[Operation]:
    """Return the operations with what `allowed_actions` looks at (see `ANNOTATIONS`)."""
    is_silent = Q(state=State.RUNNING, lease_expires_at__lt=DatabaseNow())
    return operations.annotate(
        has_checkpoint=has_checkpoint(),
        is_silent=ExpressionWrapper(is_silent, output_field=BooleanField()),
    )


def has_checkpoint() -> Exists:
    """Return the expression that says whether there is anything to resume from."""
    mine = Checkpoint.objects.filter(operation_id=OuterRef("pk"))
    return Exists(mine.exclude(health=Checkpoint.Health.CORRUPTED))


def is_resumable(operation: Operation | AccessRow) -> bool:
    """Whether it ended early and something is left to resume from."""
    row = _row(operation)
    return row["state"] in RESUMABLE and _is_saved(row)


def _is_possible(action: Action, row: AccessRow) -> bool:
    state, stop = row["state"], row["stop_requested"]
    match action:
        # A second request ends it where no worker is left to receive the first.
        case Action.CANCEL:
            return state in ACTIVE and (not stop or _is_silent(row))
        case Action.KILL:  # what waits has nothing to kill: a cancel ends it at once
            is_asked = stop == Operation.Stop.KILL and not _is_silent(row)
            return state == State.RUNNING and not is_asked
        case Action.RESUME:
            return is_resumable(row)
        case Action.DELETE:
            return state not in ACTIVE


def _is_saved(row: AccessRow) -> bool:
    known = row.get("has_checkpoint")
    if known is None:
        return Checkpoint.objects.filter(operation_id=row["id"]).usable().exists()
    return bool(known)


def _is_silent(row: AccessRow) -> bool:
    """Whether its lease has expired, so that no worker owns it any more."""
    known = row.get("is_silent")
    if known is None:
        return Operation.objects.silent().filter(pk=row["id"]).exists()
    return bool(known)


def _row(operation: Operation | AccessRow) -> AccessRow:
    if not isinstance(operation, Operation):
        return operation
    return {
        "id": operation.pk,
        "owner_id": operation.owner_id,
        "state": operation.state,
        "stop_requested": operation.stop_requested,
        "has_checkpoint": getattr(operation, "has_checkpoint", None),  # where annotated
        "is_silent": getattr(operation, "is_silent", None),
    }
