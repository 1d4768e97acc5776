"""Staged checkpoints as JSON: in recovery records and between processes."""

from collections.abc import Mapping
from typing import TypedDict

from trainops.runtime.checkpoint.manifest import (
    Artifact,
    ArtifactEntry,
    CheckpointType,
    StagedCheckpoint,
)


class StagedJson(TypedDict):
    """The fields of a StagedCheckpoint; see there."""

    directory: str
    type: str
    step: int
    digest: str
    artifacts: list[ArtifactEntry]
    state: Mapping[str, object]
    metric: float | None


def to_json(staged: StagedCheckpoint) -> StagedJson:
    return {
        "directory": staged.directory,
        "type": staged.type,
        "step": staged.step,
        "digest": staged.digest,
        "artifacts": [each.to_json() for each in staged.artifacts],
        "state": staged.state,
        "metric": staged.metric,
    }


def from_json(values: StagedJson) -> StagedCheckpoint:
    return StagedCheckpoint(
        directory=values["directory"],
        type=CheckpointType(values["type"]),
        step=values["step"],
        digest=values["digest"],
        artifacts=tuple(Artifact(**each) for each in values["artifacts"]),
        state=values["state"],
        metric=values.get("metric"),
    )
