"""A checkpoint of a real training, for what reads its weights: forks and warm starts."""

from apps.checkpoints import services, storage
from apps.checkpoints.models import Checkpoint
from apps.operations.models import Operation
from trainops.kind import KINDS
from trainops.runtime import reproducibility
from trainops.runtime.checkpoint.manifest import CheckpointType, staged
from trainops.runtime.checkpoint.store import CheckpointStore
from trainops.runtime.job import closed_after


def trained(operation: Operation) -> Checkpoint:
    """Compute the first step of an operation in this process, and save it."""
    kind = KINDS[operation.kind]
    config = kind.parse_config(operation.config)
    identity = {
        "operation_id": operation.pk, "attempt": 1, "kind": operation.kind,
        "config_hash": operation.config_hash, "config": operation.config, "inputs": {},
    }  # fmt: skip
    store = CheckpointStore(storage.operation_directory(operation.pk), identity=identity)
    with closed_after(kind.make_job(config)) as job:
        job.advance()
        written = store.write(
            CheckpointType.FINAL,
            step=job.step,
            state=dict(job.state_dict()),
            environment=reproducibility.environment(),
        )
    return services.commit(operation_id=operation.pk, attempt=1, staged=staged(written))
