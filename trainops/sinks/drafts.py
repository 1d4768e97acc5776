"""Files that appear whole: written as drafts beside their place, then renamed."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = ".draft-"


@contextmanager
def drafts(directory: Path) -> Iterator[Path]:
    """Provide an empty directory for drafts; those of a writer that was killed are removed."""
    directory.mkdir(parents=True, exist_ok=True)
    for left in directory.glob(f"{PREFIX}*"):
        shutil.rmtree(left, ignore_errors=True)
    own = Path(tempfile.mkdtemp(prefix=PREFIX, dir=directory))
    try:
        yield own
    finally:
        shutil.rmtree(own, ignore_errors=True)


def publish(draft: Path, target: Path) -> None:
    """Put a draft in its place; a crash leaves the earlier file there, or the new one."""
    with draft.open("rb") as file:
        os.fsync(file.fileno())
    target.parent.mkdir(parents=True, exist_ok=True)
    draft.replace(target)
