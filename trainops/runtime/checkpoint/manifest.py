"""What a checkpoint's directory promises, and whether it keeps the promise. Without torch.

A checkpoint is a directory of files and a manifest.json that names each of them with its size and
BLAKE3 digest. The manifest is written last; its own digest stands in the checkpoint's row.
"""

import errno
import fcntl
import math
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, NotRequired, TypedDict

from blake3 import blake3

from trainops.runtime import lossless
from trainops.runtime.errors import CheckpointCorrupted

FORMAT, VERSION = "trainops", 1
MANIFEST, STATE = "manifest.json", "state.json"
MAX_MANIFEST_BYTES = 4 * 2**20
ARTIFACT_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}(-tail|-\d{1,12}x\d{1,12})?\.pt|state\.json")
DIRECTORY_NAME = re.compile(r"a(\d{4,})-s\d{10,}-[a-z]+(-\d+)?")
CHUNK_BYTES = 2**20
SEALED = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
OWN_KEYS = frozenset(
    {"format", "version", "type", "step", "created_at", "environment", "metric", "artifacts"}
)  # all others are the identity of the one who wrote it


class CheckpointType(StrEnum):
    """Why a checkpoint was taken."""

    PERIODIC = "periodic"
    CANCELLATION = "cancellation"
    SHUTDOWN = "shutdown"
    FAILURE = "failure"
    FINAL = "final"


@dataclass(frozen=True, slots=True)
class Artifact:
    """One file of a checkpoint; `blake3` is in hexadecimal.

    `home` is the directory of the earlier checkpoint of the same operation that the file was
    written for, where nothing in it has changed since; it lies in this one's directory, too. A
    bucket has it there only. Empty: it was written for this one.
    """

    name: str
    size_bytes: int
    blake3: str
    home: str = field(default="", compare=False)

    def to_json(self) -> "ArtifactEntry":
        return {
            "name": self.name,
            "size_bytes": self.size_bytes,
            "blake3": self.blake3,
            "home": self.home,
        }


class ArtifactEntry(TypedDict):
    """The fields of an Artifact, as in manifest.json."""

    name: str
    size_bytes: int
    blake3: str
    home: NotRequired[str]


class ManifestJson(TypedDict):
    """The content of manifest.json, without the keys of the identity."""

    format: str
    version: int
    type: str
    step: int
    metric: float | None
    environment: dict[str, object]
    created_at: str
    artifacts: list[ArtifactEntry]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A committed checkpoint to restore from; `digest` is the BLAKE3 of its manifest.json."""

    path: Path
    digest: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A job frozen on disk: complete, and verified before this object was made."""

    type: CheckpointType
    step: int
    path: Path
    digest: str
    artifacts: tuple[Artifact, ...]
    state: Mapping[str, object]
    metric: float | None = None
    environment: Mapping[str, object] = field(default_factory=dict)
    created_at: str = ""
    identity: Mapping[str, Any] = field(default_factory=dict)  # what its store was made with
    write_seconds: float = field(default=0.0, compare=False)  # 0.0: not known

    @property
    def size_bytes(self) -> int:
        return sum(artifact.size_bytes for artifact in self.artifacts)

    @property
    def written_bytes(self) -> int:
        """The bytes that were new with this one."""
        return sum(artifact.size_bytes for artifact in self.artifacts if not artifact.home)


@dataclass(frozen=True, slots=True)
class StagedCheckpoint:
    """A written checkpoint that waits for its commit: what its row is made of."""

    directory: str  # its name
    type: CheckpointType
    step: int
    digest: str  # of the manifest
    artifacts: tuple[Artifact, ...]
    state: Mapping[str, object]  # the summary, encoded by `lossless`
    metric: float | None = None  # finite
    write_seconds: float = 0.0  # 0.0: not known


def staged(checkpoint: Checkpoint) -> StagedCheckpoint:
    metric = checkpoint.metric
    return StagedCheckpoint(
        directory=checkpoint.path.name,
        type=checkpoint.type,
        step=checkpoint.step,
        digest=checkpoint.digest,
        artifacts=checkpoint.artifacts,
        state=lossless.encode(dict(checkpoint.state)),
        metric=metric if metric is not None and math.isfinite(metric) else None,
        write_seconds=checkpoint.write_seconds,
    )


def verify(path: Path, digest: str | None = None) -> Checkpoint:
    """Return the checkpoint at `path` after reading every byte of it.

    `digest` is what the manifest's own digest must be, where it is known. Raises
    CheckpointCorrupted, which lists every file that is missing or altered; OSError where the
    storage itself does not answer.
    """
    checkpoint = read_manifest(path, digest)
    missing, altered = [], []
    for artifact in checkpoint.artifacts:
        try:
            with open_verified(path, artifact):
                pass
        except CheckpointCorrupted as error:
            missing += error.missing
            altered += error.altered
    if missing or altered:
        raise CheckpointCorrupted(path, missing=missing, altered=altered)
    return with_state(checkpoint)


def read_manifest(path: Path, digest: str | None = None) -> Checkpoint:
    """Return what the manifest promises (its state is left empty). Raises CheckpointCorrupted."""
    with _open(path, MANIFEST) as file:
        content = file.read(MAX_MANIFEST_BYTES + 1)
    if len(content) > MAX_MANIFEST_BYTES:
        reason = f"{MANIFEST} has more than {MAX_MANIFEST_BYTES:,} bytes"
        raise CheckpointCorrupted(path, altered=[MANIFEST], reason=reason)
    found = blake3(content).hexdigest()
    if digest is not None and found != digest:
        raise CheckpointCorrupted(path, altered=[MANIFEST])
    try:
        return _parse(path, found, lossless.loads(content))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointCorrupted(path, altered=[MANIFEST], reason=str(error)) from error


@contextmanager
def open_verified(path: Path, artifact: Artifact) -> Iterator[BinaryIO]:
    """Open one file after hashing it through the same descriptor; links are not followed.

    Raises CheckpointCorrupted.
    """
    with _open(path, artifact.name) as file:
        if (
            os.fstat(file.fileno()).st_size != artifact.size_bytes
            or _digest(file) != artifact.blake3
        ):
            raise CheckpointCorrupted(path, altered=[artifact.name])
        file.seek(0)
        yield file


@contextmanager
def copy_verified(path: Path, artifact: Artifact) -> Iterator[str]:
    """Copy one file into memory, hash the copy and seal it; yield a path to the copy.

    No process can alter the copy, whatever happens to the file. Its memory is freed once the path
    and everything that maps it are gone. Raises CheckpointCorrupted.
    """
    with _open(path, artifact.name) as file:
        if os.fstat(file.fileno()).st_size != artifact.size_bytes or not artifact.size_bytes:
            raise CheckpointCorrupted(path, altered=[artifact.name])
        copy = os.memfd_create(artifact.name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            if _copied(file, copy) != artifact.blake3:
                raise CheckpointCorrupted(path, altered=[artifact.name])
            fcntl.fcntl(copy, fcntl.F_ADD_SEALS, SEALED)
            yield f"/proc/self/fd/{copy}"
        finally:
            os.close(copy)


def _copied(file: BinaryIO, copy: int) -> str:
    """Fill a file in memory; return the digest of what was written to it."""
    hasher = blake3()
    with os.fdopen(copy, "wb", closefd=False) as target:  # a map would fault at each page
        for chunk in _chunks(file):
            hasher.update(chunk)
            target.write(chunk)
    return hasher.hexdigest()


def with_state(checkpoint: Checkpoint) -> Checkpoint:
    """Return the checkpoint with its JSON state read in. Raises CheckpointCorrupted."""
    artifact = next(each for each in checkpoint.artifacts if each.name == STATE)
    with open_verified(checkpoint.path, artifact) as file:
        content = file.read()
    try:
        state = lossless.loads(content)
    except (ValueError, RecursionError) as error:
        raise CheckpointCorrupted(checkpoint.path, altered=[STATE], reason=str(error)) from error
    return replace(checkpoint, state=state)


def _parse(path: Path, digest: str, manifest: ManifestJson) -> Checkpoint:
    if (manifest["format"], manifest["version"]) != (FORMAT, VERSION):
        found = f"{manifest['format']} {manifest['version']}"
        raise ValueError(f"got format {found}; this version of trainops reads {FORMAT} {VERSION}")
    artifacts = tuple(_artifact(entry) for entry in manifest["artifacts"])
    names = {artifact.name for artifact in artifacts}
    if STATE not in names or len(names) != len(artifacts):
        raise ValueError(f"{STATE} must be named, and each file once")
    return Checkpoint(
        type=CheckpointType(manifest["type"]),
        step=int(manifest["step"]),
        path=path,
        digest=digest,
        artifacts=artifacts,
        state={},
        metric=manifest["metric"],
        environment=dict(manifest["environment"]),
        created_at=str(manifest["created_at"]),
        identity={name: each for name, each in manifest.items() if name not in OWN_KEYS},
    )


def _artifact(entry: ArtifactEntry) -> Artifact:
    artifact = Artifact(
        str(entry["name"]),
        int(entry["size_bytes"]),
        str(entry["blake3"]),
        str(entry.get("home", "")),
    )
    if not ARTIFACT_NAME.fullmatch(artifact.name):
        raise ValueError(f"{artifact.name!r} is no name of a checkpoint's file")
    if artifact.home and not DIRECTORY_NAME.fullmatch(artifact.home):
        raise ValueError(f"{artifact.home!r} is no name of a checkpoint's directory")
    return artifact


@contextmanager
def _open(path: Path, name: str) -> Iterator[BinaryIO]:
    """Open a regular file of the checkpoint, never through a link."""
    try:
        descriptor = os.open(
            path / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        )
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CheckpointCorrupted(path, missing=[name]) from error
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise CheckpointCorrupted(path, altered=[name], reason=f"{name} is a link") from error
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise CheckpointCorrupted(path, altered=[name], reason=f"{name} is no regular file")
        yield file


def _digest(file: BinaryIO) -> str:
    hasher = blake3()
    for chunk in _chunks(file):
        hasher.update(chunk)
    return hasher.hexdigest()


def _chunks(file: BinaryIO) -> Iterator[memoryview]:
    chunk = memoryview(bytearray(CHUNK_BYTES))  # one for all: fresh memory costs more than hashing
    while size := file.readinto(chunk):  # type: ignore[attr-defined]
        yield chunk[:size]
