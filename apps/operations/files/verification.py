"""Verify a checkpoint as a resume would: its bytes, and whether a job of its kind can load it."""

from collections.abc import Sequence
from dataclasses import dataclass

from apps.checkpoints import integrity
from apps.checkpoints.models import Checkpoint
from apps.operations.errors import StorageUnavailable
from apps.operations.files import exchange
from trainops.files.checks import CheckJson
from trainops.runtime.errors import CheckpointCorrupted

LEVELS = ("ok", "warning", "failed")


@dataclass(frozen=True, slots=True)
class Verified:
    """What was found."""

    checkpoint: Checkpoint
    problem: CheckpointCorrupted | None  # of the bytes
    checks: Sequence[CheckJson]

    @property
    def level(self) -> str:
        """The most severe level of the checks."""
        return max((each["level"] for each in self.checks), key=LEVELS.index)

    @property
    def health(self) -> Checkpoint.Health:
        health = Checkpoint.Health
        if self.problem is None:
            return health.HEALTHY
        return health.UNAVAILABLE if self.problem.is_incomplete else health.CORRUPTED

    @property
    def message(self) -> str:
        """One or two sentences: whether the checkpoint is undamaged, and the problems."""
        if self.problem is not None:
            return str(self.problem)
        sentences = [f"The {self.checkpoint} is undamaged."]
        for level, said in (("failed", "A resume would fail"), ("warning", "Warning")):
            found = [f"{e['name']}: {e['detail']}" for e in self.checks if e["level"] == level]
            if found:
                sentences.append(f"{said}: {'; '.join(found)}")
        return " ".join(sentences)


def verify(checkpoint: Checkpoint, *, person: str) -> Verified:
    """Read every byte of a checkpoint, then load it into a fresh job, as a resume does.

    The result for the bytes is recorded in its row; a separate process does the loading.

    Raises StorageUnavailable, which says nothing about the bytes, and ServerBusy where the loading
    of another one for this person is not done.
    """
    try:
        problem = integrity.check(checkpoint)
    except OSError as error:
        raise StorageUnavailable(error) from error
    if problem is not None:
        return Verified(checkpoint, problem, [_bytes("failed", str(problem))])
    line = _bytes("ok", "every file matches its digest in the manifest")
    return Verified(checkpoint, None, [line, *exchange.load_checks(checkpoint, person=person)])


def _bytes(level: str, detail: str) -> CheckJson:
    return {"name": "bytes", "level": level, "detail": detail}
