"""Committed checkpoints with real bytes, made without torch."""

from collections.abc import Mapping
from typing import Any

from blake3 import blake3

from apps.checkpoints import services, storage
from apps.checkpoints.models import Checkpoint
from apps.operations.models import Operation
from trainops.runtime import lossless
from trainops.runtime.checkpoint.manifest import Artifact, CheckpointType, StagedCheckpoint

WEIGHTS = bytes(range(256)) * 300
CHANGED_FILE = "tasks/digits.py"
CHANGED = {"code": {"files": {CHANGED_FILE: "0" * 32}, "packages": {}}}  # of other code than here


def saved(
    operation: Operation,
    *,
    step: int = 10,
    type: str = "cancellation",
    attempt: int = 1,
    metric: float | None = 0.5,
    environment: Mapping[str, object] | None = None,
    **state: Any,
) -> Checkpoint:
    directory = f"a{attempt:04d}-s{step:010d}-{type}"
    path = storage.operation_directory(operation.pk) / directory
    path.mkdir(parents=True)
    state = {"epoch": 1, "val_loss": 0.5} | state
    files = {"state.json": lossless.dumps(state).encode(), "model.pt": WEIGHTS}
    artifacts = []
    for name, content in files.items():
        (path / name).write_bytes(content)
        digest = blake3(content).hexdigest()
        artifacts.append({"name": name, "size_bytes": len(content), "blake3": digest})
    manifest = lossless.dumps(
        {
            "format": "trainops",
            "version": 1,
            "operation_id": operation.pk,
            "attempt": attempt,
            "kind": operation.kind,
            "config_hash": operation.config_hash,
            "type": type,
            "step": step,
            "created_at": "2026-01-01T00:00:00Z",
            "environment": environment or {},
            "metric": metric,
            "artifacts": artifacts,
        }
    ).encode()
    (path / "manifest.json").write_bytes(manifest)
    return services.commit(
        operation_id=operation.pk,
        attempt=attempt,
        staged=StagedCheckpoint(
            directory,
            CheckpointType(type),
            step,
            blake3(manifest).hexdigest(),
            tuple(Artifact(**each) for each in artifacts),
            lossless.encode(state),
            metric,
        ),
    )


def damage(checkpoint: Checkpoint, name: str = "model.pt") -> None:
    """Flip one bit of one of its files."""
    path = storage.directory(checkpoint.artifacts_path) / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
