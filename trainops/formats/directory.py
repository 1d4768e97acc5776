"""A directory of another tool's checkpoints: which of them to go on from."""

import re
from pathlib import Path

from trainops.formats.errors import DamagedFile
from trainops.formats.verify import verify

NAME = re.compile(r"checkpoint_ep(\d+)\.pt")


def newest_healthy(directory: Path) -> tuple[Path, list[str]]:
    """Return the file of the latest episode that all checks accept, and what is wrong with later.

    Episodes are compared as numbers: ep100000 comes after ep99999. Raises DamagedFile where no
    file is healthy; OSError.
    """
    found = [(NAME.fullmatch(path.name), path) for path in directory.iterdir()]
    files = sorted((int(named[1]), path) for named, path in found if named)
    skipped: list[str] = []
    for _, path in reversed(files):
        report = verify(path)
        if report.passed:
            return path, skipped
        wrong = next(check for check in report.checks if not check.passed)
        skipped.append(f"{path.name}: {wrong.name}: {wrong.detail}")
    told = "; ".join(skipped) or "there is no checkpoint_epNNNNN.pt"
    raise DamagedFile(f"{directory} has no healthy checkpoint: {told}")
