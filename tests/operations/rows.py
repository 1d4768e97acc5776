"""Rows as the real services make them, without a worker."""

from pathlib import Path
from typing import Any

from apps.checkpoints import place, storage
from apps.operations.ids import SUBTASK, new_id
from apps.operations.lifecycle import State
from apps.operations.models import MetricPoint, Operation, Subtask
from apps.operations.placement import Offer
from apps.operations.requests import services
from apps.operations.scheduling import claims
from apps.operations.subtasks.services import RANDOM_BYTES
from trainops.clock import seconds_from_now

CONFIG = {"recipe": "digits", "epochs": 2}
OFFER = Offer(kinds=["training"], memory_bytes=8 * 10**9, disk_bytes=100 * 10**9)


def submitted(owner: Any = None, *, queue: str = "", priority: int = 0, **config: Any) -> Operation:
    place.require()  # as `up` does it at the start, before there are any files
    return services.submit(
        kind="training", config=CONFIG | config, owner=owner, queue=queue, priority=priority
    )


def claimed(
    owner: Any = None, worker_id: str = "worker-1", host: str = "host", **config: Any
) -> Operation:
    submitted(owner, **config)
    operation = claim(worker_id, host=host)
    assert operation is not None
    return operation


def claim(
    worker_id: str = "worker-1", offer: Offer = OFFER, host: str = "host"
) -> Operation | None:
    return claims.claim(worker_id=worker_id, host=host, offer=offer)


def in_state(state: State, owner: Any = None) -> Operation:
    """Put a row into a state directly: what the tests of moves start from."""
    operation = submitted(owner)
    lease = seconds_from_now(60) if state is State.RUNNING else None
    operation.row.update(state=state, lease_expires_at=lease)
    return services.get(operation.pk)


def subtask_of(parent: Operation, state: State, index: int = 0) -> Operation:
    """A subtask of an operation, named as the platform names them."""
    made = in_state(state, parent.owner)
    Operation.objects.filter(pk=made.pk).delete()
    made.pk = new_id(SUBTASK, RANDOM_BYTES)
    made.is_subtask = True
    made.save(force_insert=True)
    Subtask.objects.create(
        operation=made, parent=parent, group=1, index=index, spec={}, num_steps=2, begins_with="x",
        identity="x", name=f"client {index}", given_id="none",
    )  # fmt: skip
    return made


def forget_lease(operation: Operation) -> None:
    operation.row.update(lease_expires_at=seconds_from_now(-1))


def checkpoint_directory(operation: Operation) -> Path:
    return storage.operation_directory(operation.pk)


def retire(operation, *, by, after_step):
    """Have an attempt measure again what older ones measured after a step."""
    points = MetricPoint.objects.filter(operation=operation, attempt__lt=by, step__gt=after_step)
    points.update(retired_by=by)
