"""A warm start: a new operation that begins at step 0 with the weights of another's checkpoint."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Unpack

from apps.operations.errors import NotAllowed
from apps.operations.models import Operation
from apps.operations.requests import services
from apps.operations.requests.forking import ForkOptions, submit_from
from apps.operations.requests.initial_checkpoints import WarmStart
from trainops.kind import KINDS

if TYPE_CHECKING:
    from django.contrib.auth.models import User

WARM_START = " (warm start)"  # ends the name where none is given


def warm_start(
    *,
    operation_id: str,
    owner: "User",
    config: Mapping[str, object] | None = None,
    **more: Unpack[ForkOptions],
) -> Operation:
    """Submit a new operation of the same kind whose first checkpoint has the other's weights.

    `config` holds the fields that differ; any may. Its event names the weights that are missing,
    unexpected or of another shape.

    Raises ConfigError, CheckpointNotFound, NotAllowed, DomainError and StorageUnavailable.
    """
    source = services.get(operation_id)
    services.require_whole(source)
    require_weights(source)
    return submit_from(source, WarmStart, WARM_START, owner=owner, config=config, **more)


def require_weights(source: Operation) -> None:
    """Raise NotAllowed if operations of this kind cannot start with weights."""
    if not KINDS[source.kind].has_weights:
        allowed = ", ".join(name for name, kind in KINDS.items() if kind.has_weights)
        raise NotAllowed(
            "NO_WARM_START",
            f"Operations of kind {source.kind} cannot start with weights; allowed: {allowed}.",
            kind=source.kind,
        )


def source_of(operation: Operation) -> Operation | None:
    """Return the operation whose weights this one started with, if it still exists."""
    event = operation.events.filter(what=WarmStart.what).first()
    if event is None:
        return None
    return Operation.objects.filter(pk=WarmStart.source_in(event.note)).first()
