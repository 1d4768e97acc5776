"""Rows as the real services make them, without a worker."""

from pathlib import Path
from typing import Any

from apps.checkpoints import storage
from apps.operations import claims, services
from apps.operations.lifecycle import State
from apps.operations.models import Operation, seconds_from_now
from apps.operations.placement import Offer

CONFIG = {"recipe": "digits", "epochs": 2}
OFFER = Offer(kinds=["training"], memory_bytes=8 * 10**9, disk_bytes=100 * 10**9)


def submitted(owner: Any = None, *, queue: str = "", priority: int = 0, **config: Any) -> Operation:
    return services.submit(
        kind="training", config=CONFIG | config, owner=owner, queue=queue, priority=priority
    )


def claimed(owner: Any = None, worker_id: str = "worker-1", **config: Any) -> Operation:
    submitted(owner, **config)
    operation = claim(worker_id)
    assert operation is not None
    return operation


def claim(worker_id: str = "worker-1", offer: Offer = OFFER) -> Operation | None:
    return claims.claim(worker_id=worker_id, host="host", offer=offer)


def in_state(state: State, owner: Any = None) -> Operation:
    """Put a row into a state directly: what the tests of moves start from."""
    operation = submitted(owner)
    lease = seconds_from_now(60) if state is State.RUNNING else None
    operation.row.update(state=state, lease_expires_at=lease)
    return services.get(operation.pk)


def forget_lease(operation: Operation) -> None:
    operation.row.update(lease_expires_at=seconds_from_now(-1))


def checkpoint_directory(operation: Operation) -> Path:
    return storage.operation_directory(operation.pk)
