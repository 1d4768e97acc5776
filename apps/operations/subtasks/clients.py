"""The clients of a distributed round: operations of their own, made, found and let go by rule.

A client's operation is claimed, leased, supervised, restarted and fenced like any other. It belongs
to its server: nobody else stops, resumes or deletes it.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import DurationField, ExpressionWrapper, F, Q, Subquery

from apps.checkpoints import services as checkpoints
from apps.checkpoints.models import Checkpoint
from apps.operations.ids import PART, is_part, new_id
from apps.operations.lifecycle import ACTIVE, FINISHED, WAITING, Reason, State
from apps.operations.models import MAX_NAME_LENGTH, Attempt, ClientPart, Operation
from apps.operations.scheduling import claims
from apps.operations.scheduling.dispatch import dispatch
from apps.operations.scheduling.portions import Portions, for_each
from trainops.clock import DatabaseNow
from trainops.kind import KINDS

Told = Mapping[str, Any]  # round, client, epochs, begins_with, name, label: of a Part
RANDOM_BYTES = 4  # of an id: many are made in one second
PORTIONS = Portions()  # of this process's sweeps


def send(server: Operation, directory: str, parts: Sequence[Told]) -> list[str]:
    """Have these parts done, from this checkpoint of the server; return their operations' ids.

    What is there of them is used, or goes on; what is there of other rounds is let go.

    Raises:
        Fenced: the attempt no longer owns the server; nothing was changed.
    """
    with transaction.atomic():
        require_ownership(server)
        given = _given(server, directory)
        found = [_found(server, each) or _made(server, each, given) for each in parts]
        ids = [part.operation_id for part in found]
        ClientPart.objects.filter(pk__in=ids).update(given_id=given.pk)
        _count_anew(server, ids)
        revive(server, ids, {State.CANCELLED, State.FAILED})
        let_go(server, ClientPart.objects.filter(server=server).exclude(pk__in=ids))
    return ids


def revive(server: Operation, ids: Iterable[str], states: Iterable[State]) -> None:
    """Have those go on that ended with their server, or failed before it did; none that dropped.

    Raises:
        Fenced: the attempt no longer owns the server; nothing was changed.
    """
    ended = Operation.objects.filter(pk__in=list(ids), state__in=list(states))
    ended = ended.exclude(reason=Reason.DROPPED)
    if not ended.exists():
        return
    with transaction.atomic():
        require_ownership(server)
        for operation in ended:
            if operation.row.move(
                State.RESUMING, actor=server.worker_id, note="its server asks for it", reason="",
                error=None, not_before=None, restarts_used=0,
            ):  # fmt: skip
                ClientPart.objects.filter(pk=operation.pk).update(sent_at=DatabaseNow())
                _dispatch(operation)


def wait_for(server: Operation, state: Mapping[str, Any]) -> bool:
    """Whether clients of a round cannot begin before this state of their server is saved.

    What another attempt saved of that round may be of another branch.
    """
    if server.takes_slot or is_part(server.pk):
        return False
    mine = Checkpoint.objects.filter(operation_id=server.pk, attempt=server.attempt)
    return not mine.filter(state__round=state.get("round")).healthy().exists()


def drop(server: Operation, ids: Iterable[str]) -> None:
    """End those that are not done: from here on nothing of them is written any more.

    Raises:
        Fenced: the attempt no longer owns the server; nothing was changed.
    """
    with transaction.atomic():
        require_ownership(server)
        for part in ClientPart.objects.filter(pk__in=list(ids)).select_related("operation"):
            if _end(part.operation, Reason.DROPPED, actor=server.worker_id):
                server.record("CLIENT_DROPPED", actor=server.worker_id, note=str(part))


def age_seconds(ids: Iterable[str]) -> float:
    """Return for how long, on the database's clock, the youngest of these parts has been out."""
    parts = ClientPart.objects.filter(pk__in=list(ids))
    age = ExpressionWrapper(DatabaseNow() - F("sent_at"), output_field=DurationField())
    youngest = parts.annotate(age=age).order_by("-sent_at").values_list("age", flat=True).first()
    return youngest.total_seconds() if youngest is not None else 0.0


def settle(server: Operation) -> None:
    """Let a server's end reach its clients: they stop with it, and go where it has its result."""
    server = Operation.objects.filter(pk=server.pk, state__in=FINISHED).first() or server
    parts = ClientPart.objects.filter(server=server)
    if not server.is_finished or not parts.exists():
        return
    if server.state == State.COMPLETED:
        let_go(server, parts)
        return
    how = Operation.Stop.KILL if server.reason == Reason.KILLED_BY_PERSON else Operation.Stop.CANCEL
    for operation in Operation.objects.filter(part__server=server).active():
        waiting = operation.row.filter(state__in=WAITING)
        note, reason = f"its server is {server.state}", Reason.CANCELLED_BY_PERSON
        if not waiting.move(State.CANCELLED, actor="system", note=note, reason=reason):
            operation.row.filter(state=State.RUNNING, stop_requested="").update(
                stop_requested=how, stop_requested_at=DatabaseNow(), stop_requested_by="system"
            )


def settle_all() -> None:
    """Settle the clients of the next portion of the servers that have ended."""
    left = Q(server__state=State.COMPLETED) | Q(operation__state__in=ACTIVE)
    parts = ClientPart.objects.filter(left, server__state__in=FINISHED)
    ids = PORTIONS.next(parts.values_list("server_id", flat=True).distinct())
    for_each(Operation.objects.filter(pk__in=ids), settle, "clients of an ended server")


def let_go(server: Operation, parts: Any) -> checkpoints.Freed:
    """End what runs of these parts, and delete them with all that they saved."""
    with transaction.atomic():
        ids = list(parts.values_list("pk", flat=True))
        for operation in Operation.objects.filter(pk__in=ids).active():
            _end(operation, Reason.DROPPED, actor=server.worker_id or "system")
        freed = checkpoints.delete(Checkpoint.objects.filter(operation_id__in=ids))
        Operation.objects.filter(pk__in=ids).delete()
    return freed


def require_ownership(server: Operation) -> None:
    owned = Operation.objects.owned(server.pk, server.attempt)
    if not owned.update(progressed_at=DatabaseNow()):
        raise claims.Fenced


def _count_anew(server: Operation, ids: Iterable[str]) -> None:
    """Count the time of those whom nobody trains from when their server came back.

    It may have been a night without workers.
    """
    began = Attempt.objects.filter(operation=server, number=server.attempt).values("started_at")
    is_idle = Q(operation__state__in=WAITING) | Q(operation__lease_expires_at__lt=DatabaseNow())
    parts = ClientPart.objects.filter(is_idle, pk__in=list(ids), sent_at__lt=Subquery(began))
    parts.update(sent_at=DatabaseNow())


def _given(server: Operation, directory: str) -> Checkpoint:
    """Return the checkpoint, or, where retention has let it go, a newer one of the same round."""
    named = Checkpoint.objects.filter(artifacts_path=f"{server.pk}/{directory}").first()
    return named or checkpoints.to_resume_from(server.pk)[0]


def _found(server: Operation, told: Told) -> ClientPart | None:
    """Return the part that is there already, unless what it came to is lost."""
    part = ClientPart.objects.filter(server=server, **_identity(told)).first()
    if part is not None and part.operation.state == State.COMPLETED and final(part.pk) is None:
        let_go(server, ClientPart.objects.filter(pk=part.pk))
        return None
    return part


def final(operation_id: str) -> Checkpoint | None:
    """Return what a part that is done came to."""
    mine = Checkpoint.objects.filter(operation_id=operation_id, type=Checkpoint.Type.FINAL)
    return mine.healthy().newest_first().first()


def _made(server: Operation, told: Told, given: Checkpoint) -> ClientPart:
    name = f" · round {told['round']}, {told['name']}"
    limits = {**server.config["limits"], "max_duration_seconds": None}
    operation = Operation.objects.create(
        id=new_id(PART, RANDOM_BYTES),
        kind=server.kind,
        recipe=server.recipe,
        name=server.name[: MAX_NAME_LENGTH - len(name)] + name,
        owner=server.owner,
        config_given=server.config_given,
        config=server.config | {"limits": limits},
        config_hash=server.config_hash,
        priority=server.priority,
        queue=told["label"] or server.queue,
        device=server.device,
        gpu_memory_bytes=server.gpu_memory_bytes,
        memory_bytes=server.memory_bytes,
        unit=KINDS[server.kind].unit,
        total_steps=told["epochs"],
    )
    operation.record("SUBMITTED", actor=server.worker_id, note=f"by {server.pk}")
    _dispatch(operation)
    return ClientPart.objects.create(
        operation=operation, server=server, name=told["name"], given_id=given.pk, **_identity(told)
    )


def _identity(told: Told) -> dict[str, Any]:
    return {name: told[name] for name in ("round", "client", "epochs", "begins_with")}


def _dispatch(operation: Operation) -> None:
    transaction.on_commit(partial(dispatch, operation.pk, operation.kind, operation.queue))


def _end(operation: Operation, reason: Reason, *, actor: str) -> bool:
    """Move what is active to its end at once: its worker finds the fence, and stops."""
    moved = operation.row.filter(state__in=ACTIVE).move(
        State.CANCELLED, actor=actor, note=reason.label, reason=reason
    )
    if moved:
        claims.close_attempt(
            Operation.objects.get(pk=operation.pk), outcome=Attempt.Outcome.CANCELLED,
            reason=reason, note=reason.label,
        )  # fmt: skip
    return moved
