"""Checkpoints on disk: whole or absent, never half."""

import errno
import re
import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

from blake3 import blake3

from trainops.runtime import lossless, provenance, reproducibility
from trainops.runtime.checkpoint import storage_identity
from trainops.runtime.checkpoint.archives import Earlier, read_parts, write_parts
from trainops.runtime.checkpoint.durable import sync_directory, write_whole
from trainops.runtime.checkpoint.manifest import (
    FORMAT,
    MANIFEST,
    VERSION,
    Artifact,
    Candidate,
    Checkpoint,
    CheckpointType,
    read_manifest,
    verify,
    with_state,
)
from trainops.runtime.checkpoint.stream import part_of
from trainops.runtime.errors import SaveFailed, UnfreezableState
from trainops.runtime.job import StateDict
from trainops.runtime.policy import CheckpointPolicy

__all__ = [
    "Artifact",
    "Candidate",
    "Checkpoint",
    "CheckpointPolicy",
    "CheckpointStore",
    "CheckpointType",
    "verify",
]

PART_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


class CheckpointStore:
    """The checkpoints that one attempt writes, and those that it may start from.

    `root` is the directory of one operation; `identity` goes into every manifest (operation_id,
    attempt, kind, config_hash, config, inputs: the digests of what is read, by its ids);
    `candidates` are committed checkpoints, the newest first. A periodic checkpoint leaves
    `reserve_bytes` of the disk free, and room for the last one. With a `storage_id`, the directory
    above must have it in its identity file: without, it is away.
    """

    def __init__(
        self,
        root: Path,
        *,
        identity: Mapping[str, object],
        candidates: Sequence[Candidate] = (),
        reserve_bytes: int = 0,
        storage_id: str = "",
    ) -> None:
        self.root = root
        self.storage_id = storage_id
        self.reserve_bytes = reserve_bytes
        self.identity = dict(identity)
        self.candidates = tuple(candidates)
        self._before: Checkpoint | None = None  # the last one written or restored
        self._changed: set[str] = set()  # parts, since then

    def write(
        self,
        kind: CheckpointType,
        *,
        step: int,
        state: StateDict,
        changed: Collection[str] | None = None,
        environment: Mapping[str, object] | None = None,
    ) -> Checkpoint:
        """Write a new directory, durably, its manifest last; it counts once its row is there.

        Part "state" becomes state.json, a stream several files, every other part NAME.pt.
        `changed` names the parts that are not what they were when this was last called (None:
        all); the files of the others are not written again. `environment` is that in which the
        state was computed (None: this process). Raises UnfreezableState, where that cannot be, and
        SaveFailed, where the disk will not have it, after removing what was written; a full disk is
        noticed before the first byte.
        """
        plain, began_at = _check_writable(state), time.monotonic()
        self._changed.update(state if changed is None else changed)
        try:
            directory = self._new_directory(kind, step)
            with _all_or_nothing(directory):
                checkpoint = self._write(
                    directory, kind, step, plain, state, environment or _environment()
                )
        except OSError as error:
            raise SaveFailed(step, error.strerror or str(error)) from error
        self._before, self._changed = checkpoint, set()
        return replace(checkpoint, write_seconds=time.monotonic() - began_at)

    def refer_to_none(self) -> None:
        """Write the next checkpoint whole: the one before may not be there to be referred to."""
        self._before = None

    def load(self, candidate: Candidate, *, left_out: Collection[str] = ()) -> StateDict:
        """Return the parts of a checkpoint by name, every byte verified before it is read.

        Parts that are left out are not read. Raises CheckpointCorrupted; OSError where the storage
        itself does not answer.
        """
        return self._read(candidate, left_out)[1]

    def restore(self, candidate: Candidate) -> tuple[Checkpoint, StateDict]:
        """Return what the manifest says, and the parts, as load does."""
        checkpoint, state = self._read(candidate)
        if candidate.path.parent == self.root:  # not in another operation's directory
            self._before, self._changed = checkpoint, set()
        return checkpoint, state

    def _read(
        self, candidate: Candidate, left_out: Collection[str] = ()
    ) -> tuple[Checkpoint, StateDict]:
        self._require_storage()
        checkpoint = with_state(read_manifest(candidate.path, candidate.digest))
        files = [each for each in checkpoint.artifacts if part_of(each.name) not in left_out]
        return checkpoint, {"state": checkpoint.state, **read_parts(candidate.path, files)}

    def _require_storage(self) -> None:
        """Raise StorageAway where this would be an empty directory that something is mounted on."""
        if self.storage_id:
            storage_identity.require(self.root.parent, self.storage_id)

    def _new_directory(self, kind: CheckpointType, step: int) -> Path:
        """Make a directory that no other attempt and no other checkpoint has."""
        self._require_storage()
        name = f"a{self.identity.get('attempt', 0):04d}-s{step:010d}-{kind}"
        self.root.mkdir(parents=not self.storage_id, exist_ok=True)
        for number in range(1, 10_000):
            directory = self.root / (name if number == 1 else f"{name}-{number}")
            try:
                directory.mkdir()
            except FileExistsError:
                continue
            return directory
        raise OSError(errno.EEXIST, f"there are 10000 directories {name}")

    def _write(
        self,
        directory: Path,
        kind: CheckpointType,
        step: int,
        plain: bytes,
        state: StateDict,
        environment: Mapping[str, object],
    ) -> Checkpoint:
        reserve_bytes = self.reserve_bytes if kind is CheckpointType.PERIODIC else None
        before = self._before
        artifacts = write_parts(
            directory,
            plain,
            state,
            earlier=None if before is None else Earlier(before, frozenset(self._changed)),
            reserve_bytes=reserve_bytes,
        )
        sync_directory(directory)
        metric = state.get("state", {}).get("metric")
        created_at = datetime.fromtimestamp(time.time(), tz=UTC).isoformat()
        content = lossless.dumps(
            {
                "format": FORMAT,
                "version": VERSION,
                **self.identity,
                "type": str(kind),
                "step": step,
                "created_at": created_at,
                "environment": dict(environment),
                "metric": metric,
                "artifacts": [asdict(artifact) for artifact in artifacts],
            }
        ).encode()
        write_whole(directory / MANIFEST, content)
        sync_directory(self.root)
        return Checkpoint(
            type=kind, step=step, path=directory, digest=blake3(content).hexdigest(),
            artifacts=artifacts, state=state.get("state", {}), metric=metric,
            environment=environment, created_at=created_at,
        )  # fmt: skip


def _environment() -> dict[str, object]:
    return {**reproducibility.environment(), **provenance.to_environment()}


def _check_writable(state: StateDict) -> bytes:
    """Return the JSON of part "state". Raises UnfreezableState."""
    for name in state:
        if not PART_NAME.fullmatch(name):
            raise UnfreezableState(f"{name!r} cannot be the name of a part of the state")
    try:
        return lossless.dumps(state.get("state", {})).encode()
    except TypeError as error:
        raise UnfreezableState(f"part 'state': {error}") from error


@contextmanager
def _all_or_nothing(directory: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
