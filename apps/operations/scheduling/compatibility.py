"""Operations that this version of trainops cannot run, because a newer one wrote what they have.

While machines are updated one after the other, workers of the older version meet what the newer
one submitted and saved. They leave it to workers of other versions, where there are any.
"""

from apps.checkpoints import services as checkpoints
from apps.operations.models import Operation
from apps.operations.scheduling import queue_status
from trainops.kind import KINDS
from trainops.runtime.checkpoint.manifest import VERSION as FORMAT
from trainops.runtime.errors import ConfigError
from trainops.version import VERSION


def problem(operation: Operation) -> str:
    """Return why this version cannot run an operation; empty if it can."""
    try:
        KINDS[operation.kind].parse_config(operation.config)
    except ConfigError as error:
        return f"trainops {VERSION} does not know its config: {error}"
    return format_problem(operation)


def format_problem(operation: Operation) -> str:
    """Return why this version cannot read the newest checkpoint format; empty if it can."""
    newer = checkpoints.newer_format(operation.pk)
    if newer is None:
        return ""
    return (
        f"it has a checkpoint of format {newer}, and trainops {VERSION} reads formats up to "
        f"{FORMAT}; update this worker"
    )


def is_left_to_others(operation: Operation, worker_id: str) -> bool:
    """Whether this version cannot run it, and there is a worker of another version.

    Where there is none, an attempt fails with the reason.
    """
    if not problem(operation):
        return False
    own = f"trainops {VERSION}"
    others = (each for each in queue_status.workers() if each.worker_id != worker_id)
    return any(each.versions and own not in each.versions for each in others)
