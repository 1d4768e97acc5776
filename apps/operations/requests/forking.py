"""A fork: a new operation that goes on from a checkpoint of another, with some things different."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from apps.operations.models import MAX_NAME_LENGTH, Operation
from apps.operations.requests import services
from apps.operations.requests.beginnings import Fork
from trainops.kind import KINDS

if TYPE_CHECKING:
    from django.contrib.auth.models import User

FORK = " (fork)"  # ends the name where none is given


def fork(
    *,
    operation_id: str,
    owner: "User",
    checkpoint_id: str = "",
    config: Mapping[str, Any] | None = None,
    name: str = "",
    tags: Iterable[str] = (),
    priority: int | None = None,
    queue: str | None = None,
    idempotency_key: str = "",
) -> Operation:
    """Submit a new operation that goes on from a checkpoint of another.

    `config` holds the fields that differ. The new one has bytes of its own: what becomes of the
    other does not touch it.

    Raises ConfigError where more differs than may, CheckpointNotFound, NotAllowed, Refusal and
    StorageUnavailable.
    """
    source = services.get(operation_id)
    services.require_whole(source)
    engine = KINDS[source.kind]
    told = merged(source.config_given, config or {})
    engine.parse_config(told).require_forkable(engine.parse_config(source.config))
    checkpoint, skipped = services.first_healthy(source, checkpoint_id)
    checkpoint.operation = source
    return services.submit(
        kind=source.kind,
        config=told,
        owner=owner,
        name=name or source.name[: MAX_NAME_LENGTH - len(FORK)] + FORK,
        tags=tags,
        priority=source.priority if priority is None else priority,
        queue=source.queue if queue is None else queue,
        idempotency_key=idempotency_key,
        beginning=Fork(checkpoint, skipped=[str(each.problem) for each in skipped]),
    )


def merged(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config with the changes in it; objects are merged field by field."""
    return {
        **config,
        **{
            name: merged(config[name], value)
            if isinstance(value, Mapping) and isinstance(config.get(name), Mapping)
            else value
            for name, value in changes.items()
        },
    }
