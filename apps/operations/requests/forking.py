"""A fork: a new operation that continues from a checkpoint of another, with changed fields."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypedDict, Unpack

from apps.checkpoints.models import Checkpoint
from apps.operations.errors import NotAllowed
from apps.operations.models import MAX_NAME_LENGTH, Operation
from apps.operations.requests import services
from apps.operations.requests.initial_checkpoints import Fork, InitialCheckpoint
from apps.operations.requests.submission import with_platform_defaults
from trainops.kind import KINDS
from trainops.plain import Config
from trainops.runtime.config import OperationConfig
from trainops.runtime.durations import Duration, parse_duration
from trainops.runtime.errors import ConfigError

if TYPE_CHECKING:
    from django.contrib.auth.models import User

FORK = " (fork)"  # ends the name where none is given


class ForkOptions(TypedDict, total=False):
    """What every request for a new operation from a checkpoint may say; see `submit_from`."""

    checkpoint_id: str
    name: str
    tags: Iterable[str]
    priority: int | None
    queue: str | None
    project: str | None
    idempotency_key: str


def fork(
    *,
    operation_id: str,
    owner: "User",
    config: Mapping[str, object] | None = None,
    accept_inexact: bool = False,
    **more: Unpack[ForkOptions],
) -> Operation:
    """Submit a new operation that continues from a checkpoint of another.

    `config` holds the fields that differ. The new one has bytes of its own: what becomes of the
    other does not touch it. Files of the recipe that were changed since are a reason to refuse,
    which `accept_inexact` overrides unless the config requires exactness.

    Raises ConfigError where more differs than may, CheckpointNotFound, NotAllowed, DomainError and
    StorageUnavailable.
    """
    source = services.get(operation_id)
    services.require_whole(source)
    begins_with = partial(Fork, accept_inexact=accept_inexact)
    return submit_from(source, begins_with, FORK, owner=owner, config=config, **more)


def submit_from(
    source: Operation,
    begins_with: Callable[[Checkpoint, Sequence[str]], InitialCheckpoint],
    suffix: str,
    *,
    owner: "User",
    config: Mapping[str, object] | None = None,
    checkpoint_id: str = "",
    name: str = "",
    tags: Iterable[str] = (),
    priority: int | None = None,
    queue: str | None = None,
    project: str | None = None,
    idempotency_key: str = "",
) -> Operation:
    """Submit an operation like `source` that begins with its checkpoint.

    `suffix` ends the name; priority, label and project are those of `source` where none is given.
    """
    checkpoint, skipped = services.first_healthy(source, checkpoint_id)
    checkpoint.operation = source
    return services.submit(
        kind=source.kind,
        config=merged(source.config_given, config or {}),
        owner=owner,
        name=name or source.name[: MAX_NAME_LENGTH - len(suffix)] + suffix,
        tags=tags,
        priority=source.priority if priority is None else priority,
        queue=source.queue if queue is None else queue,
        project=source.project if project is None else project,
        idempotency_key=idempotency_key,
        initial_checkpoint=begins_with(checkpoint, [str(each.problem) for each in skipped]),
    )


def extend(
    *,
    operation_id: str,
    owner: "User",
    to: int,
    accept_inexact: bool = False,
    **more: Unpack[ForkOptions],
) -> Operation:
    """Submit a fork that runs to a greater length: more epochs, rounds or steps.

    Raises ConfigError where `to` is not greater, NotAllowed for kinds without a length, and what a
    fork raises.
    """
    changed = longer(services.get(operation_id), to)
    return fork(
        operation_id=operation_id,
        owner=owner,
        config=changed,
        accept_inexact=accept_inexact,
        **more,
    )


def longer(source: Operation, to: int | None) -> Config:
    """Return the change of the config that makes an operation run to this length.

    Raises ConfigError, and NotAllowed where its config has no length.
    """
    length, given = length_of(source)
    if not length:
        raise NotAllowed(
            "NO_LENGTH",
            f"The length of this {KINDS[source.kind].label.lower()} is not a number in its config; "
            "fork it with the fields that decide how long it runs.",
            kind=source.kind,
        )
    if to is None or to <= given:
        raise ConfigError({"to": f"got {to}; it was {given}; allowed: more {length}"})
    *outer, last = length.split(".")
    duration = _max_progress(source)
    changed: Config = {last: f"{to}{duration.unit}" if duration else to}
    for name in reversed(outer):
        changed = {name: changed}
    return changed


def length_of(source: Operation) -> tuple[str, int]:
    """Return the path of the field that holds an operation's length, and its value; "": none.

    That is max_duration where an operation was stopped by it.
    """
    if (duration := _max_progress(source)) is not None:
        return "limits.max_duration", duration.number
    return KINDS[source.kind].length_of(source.config) or ("", 0)


def _max_progress(source: Operation) -> Duration | None:
    """Return the epochs or batches at which an operation was stopped; None if it was not."""
    text = source.config["limits"].get("max_duration")
    if not text or "stopped_by" not in (source.result or {}):
        return None
    duration = parse_duration(text)
    return duration if duration.seconds is None else None


def configs(
    source: Operation, changes: Mapping[str, object]
) -> tuple[OperationConfig, OperationConfig]:
    """Return the config of an operation, and that with changes. Raises ConfigError."""
    kind = KINDS[source.kind]
    given = with_platform_defaults(source.kind, merged(source.config_given, changes))
    return kind.parse_config(source.config), kind.parse_config(given)


def merged(config: Mapping[str, object], changes: Mapping[str, object]) -> Config:
    """Return the config with the changes in it; objects are merged field by field."""
    return {**config, **{name: _merged(config.get(name), each) for name, each in changes.items()}}


def _merged(before: object, change: object) -> object:
    if isinstance(before, Mapping) and isinstance(change, Mapping):
        return merged(before, change)
    return change
