"""Who may do what with an operation, decided once: shown to clients, and enforced for all doors.

A viewer reads. An operator creates, and stops, resumes and deletes what is their own. An admin may
do everything. The state has its say, too: what it does not allow now is not offered.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import BooleanField, Exists, ExpressionWrapper, OuterRef, Q, QuerySet

from apps.checkpoints.models import Checkpoint
from apps.operations.errors import Forbidden
from apps.operations.ids import is_part
from apps.operations.lifecycle import ACTIVE, RESUMABLE, State
from apps.operations.models import Operation, Study
from trainops.clock import DatabaseNow
from trainops.http.roles import Role, has_role, role_of

ANNOTATIONS = ("has_checkpoint", "is_silent")  # the names that `annotated` adds
Person = AbstractBaseUser | AnonymousUser


class Action(StrEnum):
    CANCEL = "cancel"
    KILL = "kill"
    RESUME = "resume"
    DELETE = "delete"


def allowed_actions(operation: Operation | Mapping[str, Any], user: Person) -> list[str]:
    """Return what `user` may do with the operation now, as the values of Action.

    `operation` is a row, or its `values()`. Where those come from `annotated`, nothing is asked of
    the database but the user's role, once a request.
    """
    if is_part(_of(operation, "id")) or not may_change(_of(operation, "owner_id"), user):
        return []
    return [action.value for action in Action if _is_possible(action, operation)]


def require(operation: Operation, user: Person, action: Action | str) -> None:
    """Let `user` do this to the operation, as far as roles go; its state is the services' to judge.

    Raises:
        Forbidden: the role does not suffice, or the operation is somebody else's.
    """
    _require(operation, user, f"{action} only your own operations", action)


def require_study(study: Study, user: Person, action: str) -> None:
    """Let `user` do this to the study and its operations, as far as roles go. Raises Forbidden."""
    _require(study, user, f"{action} only your own studies", action)


def _require(owned: Operation | Study, user: Person, only: str, action: str) -> None:
    if may_change(owned.owner_id, user):
        return
    role = role_of(user)
    if role is not None and role.includes(Role.OPERATOR):
        owner = owned.owner.get_username() if owned.owner else "nobody any more"
        raise Forbidden(f"You may {only}; this one belongs to {owner}. An admin may.")
    raise Forbidden(f"To {action} it takes the role operator; yours is {role or 'none'}.")


def may_create(user: Person) -> bool:
    return has_role(user, Role.OPERATOR)


def may_change(owner_id: Any, user: Person) -> bool:
    """An operator what is their own, an admin everything."""
    if has_role(user, Role.ADMIN):
        return True
    return owner_id is not None and owner_id == user.pk and has_role(user, Role.OPERATOR)


def annotated(operations: QuerySet[Operation]) -> Any:
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


def is_resumable(operation: Operation | Mapping[str, Any]) -> bool:
    """Whether it ended early and something is left to resume from."""
    return _of(operation, "state") in RESUMABLE and _is_saved(operation)


def _is_possible(action: Action, operation: Operation | Mapping[str, Any]) -> bool:
    state, stop = _of(operation, "state"), _of(operation, "stop_requested")
    match action:
        case Action.CANCEL:  # where nobody is left to hear the first request, another one ends it
            return state in ACTIVE and (not stop or _is_silent(operation))
        case Action.KILL:  # what waits has nothing to kill: a cancel ends it at once
            is_asked = stop == Operation.Stop.KILL and not _is_silent(operation)
            return bool(state == State.RUNNING and not is_asked)
        case Action.RESUME:
            return is_resumable(operation)
        case Action.DELETE:
            return state not in ACTIVE


def _is_saved(operation: Operation | Mapping[str, Any]) -> bool:
    known = _of(operation, "has_checkpoint")
    if known is None:
        return Checkpoint.objects.filter(operation_id=_of(operation, "id")).usable().exists()
    return bool(known)


def _is_silent(operation: Operation | Mapping[str, Any]) -> bool:
    """Whether its lease has expired, so that no worker owns it any more."""
    known = _of(operation, "is_silent")
    if known is None:
        return Operation.objects.silent().filter(pk=_of(operation, "id")).exists()
    return bool(known)


def _of(operation: Operation | Mapping[str, Any], name: str) -> Any:
    if isinstance(operation, Mapping):
        return operation.get(name)
    return getattr(operation, name, None)
