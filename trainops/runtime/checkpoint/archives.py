"""The files of a checkpoint's parts: written durably once, referred to after that, read verified.

They are archives of torch's. What has not changed since the checkpoint before is a second name
(a hard link) of the same file: it is there until the last checkpoint that has it is removed.
"""

import os
import pickle
import stat
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

import torch
from torch.utils.serialization import config as torch_config

from trainops.runtime.checkpoint.durable import DurableFile, require_space
from trainops.runtime.checkpoint.manifest import STATE, Artifact, Checkpoint, copy_verified
from trainops.runtime.checkpoint.pages import PAGE_BYTES
from trainops.runtime.checkpoint.snapshot import tensors_in
from trainops.runtime.checkpoint.stream import Stream, is_of_stream, part_of, tail_name
from trainops.runtime.errors import CheckpointCorrupted
from trainops.runtime.job import StateDict

MAX_PADDING = 1 / 64  # of a part, so that each of its tensors lies at a page of the file
FAILED_READING = (
    pickle.UnpicklingError, RuntimeError, EOFError, ValueError, LookupError, TypeError,
    AttributeError, AssertionError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Earlier:
    """The checkpoint before, and the parts that have changed since."""

    checkpoint: Checkpoint
    changed: frozenset[str]

    def file(self, name: str) -> Artifact | None:
        """Return its file of this name, with its home."""
        for each in self.checkpoint.artifacts:
            if each.name == name:
                return replace(each, home=each.home or self.checkpoint.path.name)
        return None

    def unchanged_file(self, name: str) -> Artifact | None:
        """Return its file where it is certain to hold what one written now would."""
        part = part_of(name)
        return None if part in self.changed or name == tail_name(part) else self.file(name)

    def link(self, artifact: Artifact, target: Path) -> bool:
        """Give one of its files a second name; False where that cannot be."""
        try:
            os.link(self.checkpoint.path / artifact.name, target, follow_symlinks=False)
        except OSError:
            return False  # it was removed meanwhile, or the file system has no links
        found = target.lstat()
        if stat.S_ISREG(found.st_mode) and found.st_size == artifact.size_bytes:
            return True
        target.unlink()
        return False


def write_parts(
    directory: Path,
    plain: bytes,
    state: StateDict,
    *,
    earlier: Earlier | None = None,
    reserve_bytes: int | None = None,
) -> tuple[Artifact, ...]:
    """Write the files of a checkpoint but its manifest; `plain` becomes state.json.

    Where `reserve_bytes` is given, they and room for as much again stay free. Raises OSError, and
    UnfreezableState where torch cannot write a part.
    """
    archives = dict(_archives(state))
    linked = {} if earlier is None else dict(_linked(earlier, archives, directory))
    new = {name: each for name, each in archives.items() if name not in linked}
    sizes = {STATE: len(plain), **{name: _size(each) for name, each in new.items()}}
    total_bytes = sum(sizes.values())
    spare_bytes = 0 if reserve_bytes is None else reserve_bytes + total_bytes
    require_space(directory, total_bytes, spare_bytes=spare_bytes)
    with ExitStack() as stack:
        files = {}
        for name, size in sizes.items():
            files[name] = stack.enter_context(closing(DurableFile(directory / name, size)))
        files[STATE].write(plain)
        for name, archive in new.items():
            write_archive(archive, files[name], sizes[name])
        written = {
            name: Artifact(name, files[name].size_bytes, digest)
            for name, digest in [(name, file.finish()) for name, file in files.items()]
        }
    if earlier is not None:
        written = {
            name: _same_as_before(earlier, directory, each) for name, each in written.items()
        }
    return tuple((linked | written)[name] for name in (STATE, *archives))


def read_parts(path: Path, artifacts: Sequence[Artifact]) -> StateDict:
    """Return the parts by name, but "state", every byte verified. Raises CheckpointCorrupted."""
    files = [each for each in artifacts if each.name != STATE]
    by_part: dict[str, dict[str, object]] = defaultdict(dict)
    with ThreadPoolExecutor(torch.get_num_threads()) as threads:
        loaded = threads.map(partial(_read, path), files)
        for file, content in zip(files, loaded, strict=True):
            by_part[part_of(file.name)][file.name] = content
    return {part: _assembled(path, part, archives) for part, archives in by_part.items()}


def write_archive(content: object, file: DurableFile, size: int) -> None:
    """Write one archive, without its CRC-32: BLAKE3 says more in less time.

    Where the padding is little beside the whole, tensors begin at pages of the file.
    """
    settings: dict[str, object] = {"save.compute_crc32": False}
    if PAGE_BYTES * sum(1 for _ in tensors_in(content)) <= size * MAX_PADDING:
        settings["save.storage_alignment"] = PAGE_BYTES
    with torch_config.patch(settings):  # type: ignore[attr-defined]
        torch.save(content, cast(BinaryIO, file))


def write_shared(content: object, memory: Path) -> None:
    """Write one archive into memory that another process reads with `read_shared`."""
    with memory.open("wb") as file:
        torch.save(content, file)


def read_shared(memory: Path) -> object:
    """Return what `write_shared` wrote; its tensors are valid until it writes again."""
    return torch.load(str(memory), map_location="cpu", mmap=True, weights_only=True)


def _archives(state: StateDict) -> Iterator[tuple[str, object]]:
    for name, part in state.items():
        if isinstance(part, Stream):
            yield from part.archives(name)
        elif name != "state":
            yield f"{name}.pt", part


def _linked(
    earlier: Earlier, archives: Mapping[str, object], directory: Path
) -> Iterator[tuple[str, Artifact]]:
    for name in archives:
        artifact = earlier.unchanged_file(name)
        if artifact is not None and earlier.link(artifact, directory / name):
            yield name, artifact


def _same_as_before(earlier: Earlier, directory: Path, artifact: Artifact) -> Artifact:
    """Return the file of the checkpoint before where what was written turned out to equal it."""
    before = earlier.file(artifact.name)
    if artifact.name == STATE or artifact != before:
        return artifact
    draft = directory / f"{artifact.name}.draft"
    if not earlier.link(before, draft):
        return artifact
    draft.replace(directory / artifact.name)
    return before


def _size(value: object) -> int:
    """Return about how many bytes the value takes when saved, rather a little too many."""
    if isinstance(value, torch.Tensor):
        return value.nbytes + PAGE_BYTES
    if isinstance(value, dict):
        return 64 + sum(32 + _size(each) for each in value.values())
    if isinstance(value, list | tuple):
        return 64 + sum(_size(each) for each in value)
    return 16 + (len(value) if isinstance(value, str | bytes) else 0)


def _read(path: Path, artifact: Artifact) -> object:
    """Return what one archive holds. Its tensors are mapped, so that it takes memory once."""
    with copy_verified(path, artifact) as copy:
        try:
            return torch.load(copy, map_location="cpu", mmap=True, weights_only=True)
        except FAILED_READING as error:
            raise CheckpointCorrupted(
                path, altered=[artifact.name], reason=f"{artifact.name}: {error}"
            ) from error


def _assembled(path: Path, part: str, archives: Mapping[str, object]) -> object:
    if not is_of_stream(archives):
        return archives[f"{part}.pt"]
    try:
        return Stream.from_archives(part, archives)
    except FAILED_READING as error:
        raise CheckpointCorrupted(path, altered=sorted(archives), reason=str(error)) from error
