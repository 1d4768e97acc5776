"""Verify a checkpoint as a resume would: its bytes, and whether a job of its kind can load it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from apps.checkpoints import integrity, signatures, signing_keys
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
        if isinstance(self.problem, signatures.SignatureRefused):
            return health(self.checkpoint.health)
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
    """Check the signature of a checkpoint and every byte, then load it as a resume does.

    The result for both is recorded in its row; a separate process does the loading.

    Raises StorageUnavailable, which says nothing about the bytes, and ServerBusy where the loading
    of another one for this person is not done.
    """
    try:
        problem = integrity.check(checkpoint)
    except OSError as error:
        raise StorageUnavailable(error) from error
    if problem is not None:
        name = "signature" if isinstance(problem, signatures.SignatureRefused) else "bytes"
        return Verified(checkpoint, problem, [_line(name, "failed", str(problem))])
    line = _line("bytes", "ok", "every file matches its digest in the manifest")
    further = exchange.load_checks(checkpoint, person=person)
    return Verified(checkpoint, None, [line, *_of_signature(checkpoint), *further])


def _of_signature(checkpoint: Checkpoint) -> Iterator[CheckJson]:
    """Yield the line of the signature; none where this installation signs nothing yet."""
    found = signatures.of(checkpoint)
    if found.standing is signatures.Standing.UNKNOWN:
        how = f"; to accept it: signing-keys trust {found.key}" if found.key else ""
        yield _line("signature", "warning", f"{found}{how}")
    elif found.standing is not signatures.Standing.UNSIGNED:
        yield _line("signature", "ok", str(found))
    elif signing_keys.is_enrolled():
        yield _line("signature", "ok", "not signed; to sign it: signing-keys sign")


def _line(name: str, level: str, detail: str) -> CheckJson:
    return {"name": name, "level": level, "detail": detail}
