"""Subtasks: operations of their own, created, found, ended and deleted for their parent.

A subtask is claimed, leased, supervised, restarted and fenced like any other operation. Only its
parent stops, resumes or deletes it.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypedDict

from django.db import transaction
from django.db.models import DurationField, ExpressionWrapper, F, Q, Subquery

from apps.checkpoints import services as checkpoints
from apps.checkpoints.models import Checkpoint
from apps.operations.ids import SUBTASK, is_subtask, new_id
from apps.operations.lifecycle import ACTIVE, FINISHED, WAITING, Reason, State
from apps.operations.models import MAX_NAME_LENGTH, Attempt, Event, Operation, PastUse, Subtask
from apps.operations.scheduling import claims
from apps.operations.scheduling.dispatch import dispatch
from trainops.clock import DatabaseNow
from trainops.kind import KINDS
from trainops.runtime import subtasks as port
from trainops.tracing import TRACING

RANDOM_BYTES = 4  # of an id: many are created in one second


class NotSettled(Exception):
    """A subtask of an ended parent may still run."""


def start(parent: Operation, directory: str, requested: Sequence[port.Subtask]) -> list[str]:
    """Start subtasks from this checkpoint of the parent; return the ids of their operations.

    Existing ones are used, or continue; the parent's other subtasks are deleted.

    Raises:
        Fenced: the attempt no longer owns the parent; nothing was changed.
    """
    with transaction.atomic():
        require_ownership(parent)
        given = _given(parent, directory)
        found = [_found(parent, each) or _created(parent, each, given) for each in requested]
        ids = [each.operation_id for each in found]
        Subtask.objects.filter(pk__in=ids).update(given_id=given.pk)
        _restart_clock(parent, ids)
        revive(parent, ids, {State.CANCELLED, State.FAILED})
        delete(parent, Subtask.objects.filter(parent=parent).exclude(pk__in=ids))
    return ids


def revive(parent: Operation, ids: Iterable[str], states: Iterable[State]) -> None:
    """Resume subtasks that ended with their parent or failed before it, but no dropped ones.

    Raises:
        Fenced: the attempt no longer owns the parent; nothing was changed.
    """
    ended = Operation.objects.filter(pk__in=list(ids), state__in=list(states))
    ended = ended.exclude(reason=Reason.DROPPED)
    if not ended.exists():
        return
    with transaction.atomic():
        require_ownership(parent)
        for operation in ended:
            if operation.row.move(
                State.RESUMING, actor=parent.worker_id, note="requested by its parent", reason="",
                error=None, not_before=None, restarts_used=0,
            ):  # fmt: skip
                Subtask.objects.filter(pk=operation.pk).update(sent_at=DatabaseNow())
                _dispatch(operation)


def is_awaited(parent: Operation, state: Mapping[str, object], step: int) -> bool:
    """Whether a group of subtasks cannot start before this state of their parent is saved.

    A checkpoint of the same group by another attempt may be of another branch.
    """
    if parent.takes_slot or is_subtask(parent.pk):
        return False
    group = KINDS[parent.kind].group_of(state, step)
    return group is not None and group not in _saved_groups(parent)


def _saved_groups(parent: Operation) -> set[int | None]:
    mine = Checkpoint.objects.filter(operation_id=parent.pk, attempt=parent.attempt).healthy()
    kind, states = KINDS[parent.kind], mine.values_list("state", "step")
    return {kind.group_of(state, step) for state, step in states}


def drop(parent: Operation, ids: Iterable[str]) -> None:
    """End those that are not done: their attempts can write nothing from now on.

    Raises:
        Fenced: the attempt no longer owns the parent; nothing was changed.
    """
    with transaction.atomic():
        require_ownership(parent)
        for subtask in Subtask.objects.filter(pk__in=list(ids)).select_related("operation"):
            if _end(subtask.operation, Reason.DROPPED, actor=parent.worker_id):
                parent.record("SUBTASK_DROPPED", actor=parent.worker_id, note=str(subtask))


def age_seconds(ids: Iterable[str]) -> float:
    """Return the time since the latest start of these subtasks, on the database's clock."""
    subtasks = Subtask.objects.filter(pk__in=list(ids))
    age = ExpressionWrapper(DatabaseNow() - F("sent_at"), output_field=DurationField())
    ages = subtasks.annotate(age=age).order_by("-sent_at").values_list("age", flat=True)
    youngest = ages.first()
    return youngest.total_seconds() if youngest is not None else 0.0


def operation_ended(event: Event) -> None:
    """Subscriber: settle the subtasks of an ended parent.

    Raises NotSettled, so that it is retried, if a subtask changed its state meanwhile.
    """
    parent = Operation.objects.filter(pk=event.operation_id).first()
    if parent is None:
        return
    settle(parent)
    parent.refresh_from_db()
    left = Operation.objects.filter(subtask__parent=parent, stop_requested="").active()
    if parent.is_finished and left.exists():
        raise NotSettled(f"{left.count()} subtasks of {parent.pk} are still active")


def settle(parent: Operation) -> None:
    """Stop the subtasks of an ended parent; delete them if it has its result."""
    parent = Operation.objects.filter(pk=parent.pk, state__in=FINISHED).first() or parent
    subtasks = Subtask.objects.filter(parent=parent)
    if not parent.is_finished or not subtasks.exists():
        return
    if parent.state == State.COMPLETED:
        delete(parent, subtasks)
        return
    how = Operation.Stop.KILL if parent.reason == Reason.KILLED_BY_PERSON else Operation.Stop.CANCEL
    for operation in Operation.objects.filter(subtask__parent=parent).active():
        waiting = operation.row.filter(state__in=WAITING)
        note, reason = f"its parent is {parent.state}", Reason.CANCELLED_BY_PERSON
        if not waiting.move(State.CANCELLED, actor="system", note=note, reason=reason):
            operation.row.filter(state=State.RUNNING, stop_requested="").update(
                stop_requested=how, stop_requested_at=DatabaseNow(), stop_requested_by="system"
            )


def delete(parent: Operation, subtasks: Any) -> checkpoints.Freed:
    """End the active ones of these subtasks, and delete all with their checkpoints."""
    with transaction.atomic():
        ids = list(subtasks.values_list("pk", flat=True))
        for operation in Operation.objects.filter(pk__in=ids).active():
            _end(operation, Reason.DROPPED, actor=parent.worker_id or "system")
        freed = checkpoints.delete(Checkpoint.objects.filter(operation_id__in=ids))
        PastUse.keep(Operation.objects.filter(pk__in=ids))
        Operation.objects.filter(pk__in=ids).delete()
    return freed


def final(operation_id: str) -> Checkpoint | None:
    """Return the final checkpoint of a completed subtask; None if it is lost."""
    mine = Checkpoint.objects.filter(operation_id=operation_id, type=Checkpoint.Type.FINAL)
    return mine.healthy().newest_first().first()


def require_ownership(parent: Operation) -> None:
    owned = Operation.objects.owned(parent.pk, parent.attempt)
    if not owned.update(progressed_at=DatabaseNow()):
        raise claims.Fenced


def _restart_clock(parent: Operation, ids: Iterable[str]) -> None:
    """Restart the clock of subtasks without a worker at the start of the parent's attempt.

    Before it there may have been no workers for hours.
    """
    began = Attempt.objects.filter(operation=parent, number=parent.attempt).values("started_at")
    is_idle = Q(operation__state__in=WAITING) | Q(operation__lease_expires_at__lt=DatabaseNow())
    idle = Subtask.objects.filter(is_idle, pk__in=list(ids), sent_at__lt=Subquery(began))
    idle.update(sent_at=DatabaseNow())


def _given(parent: Operation, directory: str) -> Checkpoint:
    """Return the checkpoint, or, if retention deleted it, a newer one of the same group."""
    named = Checkpoint.objects.filter(artifacts_path=f"{parent.pk}/{directory}").first()
    return named or checkpoints.to_resume_from(parent.pk)[0]


def _found(parent: Operation, requested: port.Subtask) -> Subtask | None:
    """Return the existing subtask, unless its result is lost."""
    found = Subtask.objects.filter(parent=parent, **_key(requested)).first()
    if found is not None and found.operation.state == State.COMPLETED and final(found.pk) is None:
        delete(parent, Subtask.objects.filter(pk=found.pk))
        return None
    return found


def _created(parent: Operation, requested: port.Subtask, given: Checkpoint) -> Subtask:
    kind = KINDS[parent.kind]
    name = f" · {kind.group} {requested.group}, {requested.name}"
    limits = {**parent.config["limits"], "max_duration_seconds": None, "max_duration": None}
    operation = Operation.objects.create(
        id=new_id(SUBTASK, RANDOM_BYTES),
        is_subtask=True,
        kind=parent.kind,
        recipe=parent.recipe,
        name=parent.name[: MAX_NAME_LENGTH - len(name)] + name,
        owner=parent.owner,
        project=parent.project,
        config_given=parent.config_given,
        config=parent.config | {"limits": limits},
        config_hash=parent.config_hash,
        priority=parent.priority,
        queue=requested.label or parent.queue,
        device=parent.device,
        gpu_memory_bytes=parent.gpu_memory_bytes,
        memory_bytes=parent.memory_bytes,
        uses_datasets=parent.uses_datasets,
        unit=kind.unit,
        total_steps=requested.num_steps,
        traceparent=TRACING.current(),
    )
    operation.record("SUBMITTED", actor=parent.worker_id, note=f"by {parent.pk}")
    _dispatch(operation)
    return Subtask.objects.create(
        operation=operation, parent=parent, spec=dict(requested.spec), name=requested.name,
        num_steps=requested.num_steps, begins_with=requested.begins_with, given_id=given.pk,
        **_key(requested),
    )  # fmt: skip


class SubtaskKey(TypedDict):
    """The fields in which a parent's subtasks differ."""

    group: int
    index: int
    identity: str


def _key(requested: port.Subtask) -> SubtaskKey:
    return {"group": requested.group, "index": requested.index, "identity": requested.identity}


def _dispatch(operation: Operation) -> None:
    transaction.on_commit(partial(dispatch, operation.pk, operation.kind, operation.queue))


def _end(operation: Operation, reason: Reason, *, actor: str) -> bool:
    """End an active operation at once; the fence stops its worker."""
    moved = operation.row.filter(state__in=ACTIVE).move(
        State.CANCELLED, actor=actor, note=reason.label, reason=reason
    )
    if moved:
        claims.close_attempt(
            Operation.objects.get(pk=operation.pk), outcome=Attempt.Outcome.CANCELLED,
            reason=reason, note=reason.label,
        )  # fmt: skip
    return moved
