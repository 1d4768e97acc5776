"""Verification of a registered directory or prefix: names and sizes, and all files or a sample."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from trainops.datasets import manifest as manifests
from trainops.datasets.description import DirectoryVerification
from trainops.datasets.files import FoundFile, scan
from trainops.datasets.manifest import Manifest
from trainops.datasets.sampling import Sample

MAX_PROBLEMS = 100


def verify(
    root: Path, manifest: Path, allowed: list[Path], sample: Sample | None = None
) -> DirectoryVerification:
    """Compare a directory with its manifest. Raises DataError where it cannot be read."""
    return compared(manifest, scan(root, allowed), partial(manifests.make, root), sample)


def compared(
    manifest: Path,
    found: list[FoundFile],
    read: Callable[[list[FoundFile]], Manifest],
    sample: Sample | None = None,
) -> DirectoryVerification:
    """Compare names and sizes of all files, then the content of all or of those of a sample.

    `read` reads files whole. Those that are missing or have another size are not read.
    """
    registered = Manifest.read(manifest)
    problems = list(manifests.differences(registered, found))
    files = _to_read(registered, found, sample)
    current = read(list(files.values()))
    problems += [
        f"{files[index].name} has another content"
        for n, index in enumerate(files)
        if current.digests[n] != registered.digests[index]
    ]
    return {
        "problems": problems[:MAX_PROBLEMS],
        "num_files": len(registered),
        "num_files_read": len(files),
        "num_bytes": int(registered.sizes.sum()),
        "num_bytes_read": int(current.sizes.sum()),
        "seed": None if sample is None else sample.seed,
    }


def _to_read(
    registered: Manifest, found: list[FoundFile], sample: Sample | None
) -> dict[int, FoundFile]:
    """Return the files to read, by their place in the manifest."""
    drawn = range(len(registered)) if sample is None else sample.drawn(len(registered))
    by_name = {each.name: each for each in found}
    pairs = ((index, by_name.get(registered.names[index].as_py())) for index in drawn)
    return {
        index: each
        for index, each in pairs
        if each is not None and each.size_bytes == registered.sizes[index]
    }
