"""One action on several operations: refusals are reported, the other operations are changed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from apps.operations.errors import OperationNotFound
from apps.operations.models import Operation
from apps.operations.requests import access, deletion, editing, services
from apps.operations.requests.access import Person
from apps.operations.requests.editing import Changes
from trainops.errors import DomainError
from trainops.runtime.errors import ConfigError

if TYPE_CHECKING:
    from django.contrib.auth.models import User

MAX_OPERATIONS = 500
EDITS: Mapping[str, Changes] = {
    "archive": {"archived": True},
    "acknowledge": {"acknowledged": True},
    "favourite": {"is_favourite": True},
}
MARKED = {"archive": "Archived", "acknowledge": "Acknowledged", "favourite": "Marked"}


@dataclass(frozen=True, slots=True)
class BulkOptions:
    """What further belongs to an action; other actions ignore it."""

    checkpoint_id: str = ""  # resume; "": the latest healthy one of each
    accept_inexact: bool = False  # resume
    note: str = ""  # acknowledge
    tags: Sequence[str] = ()  # edit: to be added
    untags: Sequence[str] = ()  # edit: to be removed
    project: str | None = None  # edit; None: as it is, "": none


@dataclass(frozen=True, slots=True)
class BulkResult:
    """What an action did to one operation, or why it was refused."""

    operation_id: str
    name: str
    message: str = ""
    is_refused: bool = False
    code: str = ""  # of the error; a preview has none
    freed_bytes: int = 0


def fetch(ids: Sequence[str]) -> list[Operation]:
    """Return the first MAX_OPERATIONS of these operations in this order, without missing ones."""
    first = list(dict.fromkeys(ids))[:MAX_OPERATIONS]
    rows = Operation.objects.select_related("owner").filter(pk__in=first)
    found = {each.pk: each for each in access.annotated(rows)}
    return [found[each] for each in first if each in found]


def missing(ids: Iterable[str], operations: Iterable[Operation]) -> list[BulkResult]:
    """Return a refusal for each of the ids that is not among the operations."""
    known = {each.pk for each in operations}
    unknown = [each for each in dict.fromkeys(ids) if each not in known]
    errors = {each: OperationNotFound(each) for each in unknown}
    return [
        BulkResult(each, "", error.message, is_refused=True, code=error.code)
        for each, error in errors.items()
    ]


def refusal(action: str, operation: Operation, user: Person) -> str:
    """Return why `user` cannot do this to the operation now; "" if they can."""
    if action in (*EDITS, "edit") and access.may_change(operation.owner_id, user):
        return editing.refusal(operation, EDITS.get(action, {}))
    return access.why_not(action, operation, user)


def preview(action: str, operations: Iterable[Operation], user: Person) -> list[BulkResult]:
    """Return what `carry_out` would do, as far as roles and states tell; change nothing."""
    found = []
    for operation in operations:
        why_not = refusal(action, operation, user)
        found.append(BulkResult(operation.pk, operation.name, why_not, is_refused=bool(why_not)))
    return found


def carry_out(
    action: str,
    operations: Iterable[Operation],
    actor: "User",
    options: BulkOptions = BulkOptions(),
) -> list[BulkResult]:
    """Do it to each of the operations; `action` is one of ACTIONS."""
    outcomes = []
    for operation in operations:
        try:
            access.require(operation, actor, action)
            outcomes.append(ACTIONS[action](operation, actor, options))
        except DomainError as error:
            outcomes.append(_refused(operation, error.message, error.code))
        except ConfigError as error:
            outcomes.append(_refused(operation, str(error), "VALIDATION_ERROR"))
    return outcomes


def _refused(operation: Operation, message: str, code: str) -> BulkResult:
    return BulkResult(operation.pk, operation.name, message, is_refused=True, code=code)


def _done(operation: Operation, message: str, freed_bytes: int = 0) -> BulkResult:
    return BulkResult(operation.pk, operation.name, message, freed_bytes=freed_bytes)


def _cancel(operation: Operation, actor: "User", options: BulkOptions) -> BulkResult:
    after = services.cancel(operation_id=operation.pk, actor=actor)
    if after.is_finished:
        return _done(operation, f"Cancelled “{operation.name}”.")
    return _done(operation, f"Cancelling “{operation.name}”: saving a checkpoint first.")


def _kill(operation: Operation, actor: "User", options: BulkOptions) -> BulkResult:
    after = services.kill(operation_id=operation.pk, actor=actor)
    return _done(operation, f"{'Killed' if after.is_finished else 'Killing'} “{operation.name}”.")


def _resume(operation: Operation, actor: "User", options: BulkOptions) -> BulkResult:
    resumption = services.resume(
        operation_id=operation.pk,
        actor=actor,
        checkpoint_id=options.checkpoint_id,
        accept_inexact=options.accept_inexact,
    )
    return _done(operation, f"{resumption.message}.")


def _delete(operation: Operation, actor: "User", options: BulkOptions) -> BulkResult:
    freed = deletion.delete(operation_id=operation.pk, actor=actor)
    return _done(operation, f"Deleted “{operation.name}”.", freed.freed_bytes)


def _edit(operation: Operation, actor: "User", options: BulkOptions) -> BulkResult:
    tags = dict.fromkeys([*operation.tags.values_list("name", flat=True), *options.tags])
    changes: Changes = {"tags": [each for each in tags if each not in options.untags]}
    if options.project is not None:
        changes["project"] = options.project
    revision = operation.revision
    editing.edit(operation_id=operation.pk, actor=actor, changes=changes, revision=revision)
    return _done(operation, f"Edited “{operation.name}”.")


def _mark(action: str, operation: Operation, actor: "User", options: BulkOptions) -> BulkResult:
    changes = EDITS[action].copy()
    if changes.get("acknowledged"):
        changes["acknowledgement"] = options.note
    editing.edit(operation_id=operation.pk, actor=actor, changes=changes)
    return _done(operation, f"{MARKED[action]} “{operation.name}”.")


_CarryOut: TypeAlias = Callable[[Operation, "User", BulkOptions], BulkResult]
ACTIONS: Mapping[str, _CarryOut] = {
    "cancel": _cancel,
    "kill": _kill,
    "resume": _resume,
    "delete": _delete,
    **{action: partial(_mark, action) for action in EDITS},
    "edit": _edit,
}
