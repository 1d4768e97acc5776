"""What a confined process does with a directory or prefix: make its manifest, or verify it.

The web process loads neither pyarrow nor anything that reads foreign files.
"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from apps.datasets.directories.messages import Added, DirectoryAnswer, DirectoryRequest
from trainops.checkpoint_storage import parse
from trainops.datasets import files, layouts, manifest, verification
from trainops.datasets.description import DirectoryDescription, DirectoryVerification
from trainops.datasets.errors import DataError, DirectoryAway
from trainops.datasets.sampling import Sample

if TYPE_CHECKING:
    from trainops.datasets.objects import Prefix

NUM_SHOWN = 50


def answer(request: DirectoryRequest) -> DirectoryAnswer:
    root, allowed = Path(request["root"]), [Path(each) for each in request["allowed"]]
    target, source = Path(request["manifest"]), request["source"]
    try:
        match request["action"]:
            case "add":
                added = _add_prefix(source, target) if source else _add(root, allowed, target)
                return {"added": added}
            case "verify":
                sample = Sample(*request["sample"]) if request["sample"] else None
                if source:
                    return {"verified": _verify_prefix(source, target, sample)}
                return {"verified": verification.verify(root, target, allowed, sample)}
    except DataError as error:
        return {"refused": error.errors["data"]}
    except DirectoryAway as error:
        return {"refused": str(error)}


def _add(root: Path, allowed: list[Path], target: Path) -> Added:
    found = files.scan(root, allowed)
    if not found:
        raise DataError(f"{root} holds no file")
    layout = layouts.describe(root, found)
    manifest.make(root, found).write(target)
    return _described(layout, found)


def _add_prefix(source: str, target: Path) -> Added:
    """Read every object once. Its content is not parsed: this process has credentials."""
    prefix = _prefix(source)
    found = prefix.found()
    if not found:
        raise DataError(f"{prefix} holds no object")
    manifest.of_digests(found, prefix.digests_of).write(target)
    return _described(layouts.describe(None, found), found)


def _verify_prefix(source: str, target: Path, sample: Sample | None) -> DirectoryVerification:
    prefix = _prefix(source)
    read = partial(manifest.of_digests, digests_of=prefix.digests_of)
    return verification.compared(target, prefix.found(), read, sample)


def _described(layout: DirectoryDescription, found: list[files.FoundFile]) -> Added:
    return {
        "layout": layout,
        "changed_ns": max(each.changed_ns for each in found),
        "first": [(each.name, each.size_bytes) for each in found[:NUM_SHOWN]],
    }


def _prefix(source: str) -> "Prefix":
    from trainops.datasets.objects import Prefix  # noqa: PLC0415 - loads boto3

    return Prefix(parse(source))
