"""Checkpoints on disk: whole or absent, never half."""

import errno
import mmap
import pickle
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch
from blake3 import blake3
from torch.utils.serialization import config as torch_config

from trainops.engines import lossless, reproducibility
from trainops.engines.durable import DurableFile, require_space, sync_directory, write_whole
from trainops.engines.errors import CheckpointCorrupted, SaveFailed, UnfreezableState
from trainops.engines.job import StateDict
from trainops.engines.manifest import (
    FORMAT,
    MANIFEST,
    STATE,
    VERSION,
    Artifact,
    Candidate,
    Checkpoint,
    CheckpointType,
    read_manifest,
    read_verified,
    verify,
    with_state,
)
from trainops.engines.pages import PAGE_BYTES
from trainops.engines.policy import CheckpointPolicy
from trainops.engines.snapshot import tensors_in

__all__ = [
    "Artifact",
    "Candidate",
    "Checkpoint",
    "CheckpointPolicy",
    "CheckpointStore",
    "CheckpointType",
    "verify",
]

ZIP = b"PK\x03\x04"
PART_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
MAX_PADDING = 1 / 64  # of a part, so that each of its tensors lies at a page of the file
FAILED_READING = (
    pickle.UnpicklingError, RuntimeError, EOFError, ValueError, LookupError, TypeError,
    AttributeError, AssertionError,
)  # fmt: skip


class CheckpointStore:
    """The checkpoints that one attempt writes, and those that it may start from.

    `root` is the directory of one operation; `identity` goes into every manifest (operation_id,
    attempt, kind, config_hash); `candidates` are committed checkpoints, the newest first. A
    periodic checkpoint leaves `reserve_bytes` of the disk free, and room for the last one.
    """

    def __init__(
        self,
        root: Path,
        *,
        identity: Mapping[str, Any],
        candidates: Sequence[Candidate] = (),
        reserve_bytes: int = 0,
    ) -> None:
        self.root = root
        self.reserve_bytes = reserve_bytes
        self.identity = dict(identity)
        self.candidates = tuple(candidates)

    def write(self, kind: CheckpointType, *, step: int, state: StateDict) -> Checkpoint:
        """Write a new directory, durably, its manifest last; it counts once its row is there.

        Part "state" becomes state.json, every other part NAME.pt. Raises UnfreezableState, where
        that cannot be, and SaveFailed, where the disk will not have it, after removing what was
        written; a full disk is noticed before the first byte.
        """
        plain = _check_writable(state)
        try:
            directory = self._new_directory(kind, step)
            with _all_or_nothing(directory):
                return self._write(directory, kind, step, plain, state)
        except OSError as error:
            raise SaveFailed(step, error.strerror or str(error)) from error

    def load(self, candidate: Candidate) -> StateDict:
        """Return the parts of a checkpoint by name, every byte verified before it is read.

        Raises CheckpointCorrupted; OSError where the storage itself does not answer.
        """
        return self.restore(candidate)[1]

    def restore(self, candidate: Candidate) -> tuple[Checkpoint, StateDict]:
        """Return what the manifest says, and the parts, as load does."""
        checkpoint = with_state(read_manifest(candidate.path, candidate.digest))
        archives = [each for each in checkpoint.artifacts if each.name != STATE]
        with ThreadPoolExecutor(torch.get_num_threads()) as threads:
            loaded = threads.map(partial(_load, candidate.path), archives)
            parts = {
                archive.name.removesuffix(".pt"): part
                for archive, part in zip(archives, loaded, strict=True)
            }
        return checkpoint, {"state": checkpoint.state, **parts}

    def _new_directory(self, kind: CheckpointType, step: int) -> Path:
        """Make a directory that no other attempt and no other checkpoint has."""
        name = f"a{self.identity.get('attempt', 0):04d}-s{step:010d}-{kind}"
        self.root.mkdir(parents=True, exist_ok=True)
        for number in range(1, 10_000):
            directory = self.root / (name if number == 1 else f"{name}-{number}")
            try:
                directory.mkdir()
            except FileExistsError:
                continue
            return directory
        raise OSError(errno.EEXIST, f"there are 10000 directories {name}")

    def _write(
        self, directory: Path, kind: CheckpointType, step: int, plain: bytes, state: StateDict
    ) -> Checkpoint:
        reserve_bytes = self.reserve_bytes if kind is CheckpointType.PERIODIC else None
        artifacts = _write_parts(directory, plain, state, reserve_bytes)
        sync_directory(directory)
        metric = state.get("state", {}).get("metric")
        environment = reproducibility.environment()
        created_at = datetime.fromtimestamp(time.time(), tz=UTC).isoformat()
        content = lossless.dumps(
            {
                "format": FORMAT,
                "version": VERSION,
                **self.identity,
                "type": str(kind),
                "step": step,
                "created_at": created_at,
                "environment": environment,
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


def _write_parts(
    directory: Path, plain: bytes, state: StateDict, reserve_bytes: int | None
) -> tuple[Artifact, ...]:
    parts = {name: part for name, part in state.items() if name != "state"}
    sizes = {STATE: len(plain), **{f"{name}.pt": _size(part) for name, part in parts.items()}}
    total_bytes = sum(sizes.values())
    spare_bytes = 0 if reserve_bytes is None else reserve_bytes + total_bytes
    require_space(directory, total_bytes, spare_bytes=spare_bytes)
    with ExitStack() as stack:
        files = {}
        for name, size in sizes.items():
            files[name] = stack.enter_context(closing(DurableFile(directory / name, size)))
        files[STATE].write(plain)
        for name, part in parts.items():
            _archive(part, files[f"{name}.pt"], sizes[f"{name}.pt"])
        digests = {name: file.finish() for name, file in files.items()}
        return tuple(
            Artifact(name, files[name].size_bytes, digest) for name, digest in digests.items()
        )


def _archive(part: Any, file: DurableFile, size: int) -> None:
    """Write one part as an archive of torch's, without its CRC-32: BLAKE3 says more in less time.

    Where the padding is little beside the whole, tensors begin at pages of the file.
    """
    settings: dict[str, Any] = {"save.compute_crc32": False}
    if PAGE_BYTES * sum(1 for _ in tensors_in(part)) <= size * MAX_PADDING:
        settings["save.storage_alignment"] = PAGE_BYTES
    with torch_config.patch(settings):  # type: ignore[attr-defined]
        torch.save(part, cast(BinaryIO, file))


def _size(value: Any) -> int:
    """Return about how many bytes the value takes when saved, rather a little too many."""
    if isinstance(value, torch.Tensor):
        return value.nbytes + PAGE_BYTES
    if isinstance(value, dict):
        return 64 + sum(32 + _size(each) for each in value.values())
    if isinstance(value, list | tuple):
        return 64 + sum(_size(each) for each in value)
    return 16 + (len(value) if isinstance(value, str | bytes) else 0)


def _load(path: Path, artifact: Artifact) -> Any:
    pages = read_verified(path, artifact)
    if pages[: len(ZIP)] != ZIP:  # torch would go on to older formats
        raise CheckpointCorrupted(path, altered=[artifact.name], reason="no archive of torch")
    try:
        return _unpickle(pages)
    except FAILED_READING as error:
        raise CheckpointCorrupted(
            path, altered=[artifact.name], reason=f"{artifact.name}: {error}"
        ) from error


def _unpickle(pages: mmap.mmap) -> Any:
    """Return what an archive in memory holds, its tensors where they lie.

    This is what torch.load(mmap=True, weights_only=True) does with a file, over whose bytes it
    has no power: they may change, or end, after they were verified.
    """
    return torch.serialization._load(
        torch._C.PyTorchFileReader(cast(BinaryIO, pages)),
        "cpu",
        torch._weights_only_unpickler,
        overall_storage=torch.frombuffer(pages, dtype=torch.uint8).untyped_storage(),
        encoding="utf-8",
    )
