"""The data directory: whose it is now, and which version of the program wrote it."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainops.launch.refusal import CannotStart

# Raised when what lies in the directory changes in a way that older programs would misread.
# (The database has its migrations beside this; `prepare` refuses unknown ones in the same way.)
FORMAT = 1
VERSION_FILE = "version.json"
LOCK_FILE = "up.lock"


def require_not_newer(directory: Path) -> None:
    """Raise CannotStart when a newer trainops has been at work there."""
    path = directory / VERSION_FILE
    if not path.exists():
        return
    try:
        written = json.loads(path.read_text())
        found, program = int(written["format"]), str(written["trainops"])
    except (ValueError, KeyError, TypeError) as error:
        raise CannotStart(f"{path} is not a readable version file: {error}") from error
    if found > FORMAT:
        raise CannotStart(
            f"The data directory {directory} was written by trainops {program} (format {found}); "
            f"this one reads formats up to {FORMAT}. Update trainops, or use another --data-dir."
        )


def write_version(directory: Path, program: str) -> None:
    """Say who wrote here last; whole or not at all."""
    draft = directory / f"{VERSION_FILE}.new"
    draft.write_text(json.dumps({"format": FORMAT, "trainops": program}) + "\n")
    draft.replace(directory / VERSION_FILE)


@contextmanager
def owned(directory: Path, url: str) -> Iterator[None]:
    """Own the directory until the block or this process ends, however it ends.

    Raises CannotStart, naming the other process and its page, when it is owned already.
    """
    with (directory / LOCK_FILE).open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CannotStart(_taken(directory)) from error
        lock.truncate(0)
        lock.write(json.dumps({"pid": os.getpid(), "url": url}))
        lock.flush()
        try:
            yield
        finally:
            lock.truncate(0)


def _taken(directory: Path) -> str:
    try:
        other = json.loads((directory / LOCK_FILE).read_text())
        where = f" (process {other['pid']}) at {other['url']}"
    except (OSError, ValueError, KeyError):
        where = ""  # it is just starting or stopping
    return f"trainops is already running with the data directory {directory}{where}."
