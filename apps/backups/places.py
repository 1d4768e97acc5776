"""Where backups are: a directory, or a prefix of a bucket. Both keep files by name, each whole."""

import fcntl
import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from secrets import token_hex
from threading import Event, Thread
from typing import BinaryIO, Protocol, TypeVar

from apps.backups.contents import DRAFT
from apps.backups.errors import Busy
from apps.checkpoints.objects import FileContent, Objects
from apps.checkpoints.trying import Missing, RetryPolicy, StorageFailed, retried
from trainops.runtime.checkpoint.durable import sync_directory

logger = logging.getLogger(__name__)
T = TypeVar("T")
LOCKS, LOCK = "locks/", ".lock"
ID = "[0-9a-f]{16}"
OWN_LOCK = re.compile(LOCKS + ID)
OWN_DRAFT = re.compile(re.escape(DRAFT) + ID)
OWN = re.compile(f"{OWN_LOCK.pattern}|{OWN_DRAFT.pattern}|{re.escape(LOCK)}")
PATIENT = RetryPolicy(tries=8)  # pauses of two minutes in all: no request waits for a backup
RENEWED_SECONDS, STALE_SECONDS = 30.0, 300.0


class Place(Protocol):
    """Names are relative and have slashes. Errors are OSError, and FileNotFoundError of a name."""

    location: str
    is_remote: bool

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the size of every file whose name begins with a prefix that ends with a slash.

        Raises FileNotFoundError where a directory is missing, also an unmounted one.
        """

    def foreign(self, is_own: Callable[[str], bool]) -> str | None:
        """Return the name of a file that is not of ours; None where there is none."""

    def draft(self) -> AbstractContextManager[Path]:
        """Yield the path of a file to be written for `put`."""

    def put(self, draft: Path, name: str) -> None:
        """Store a draft under a name, durably, in place of an earlier one."""

    def opened(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Yield a stored file, open for reading."""

    def path(self, name: str) -> Path | None:
        """Return where a file is on this machine; None where it has to be downloaded."""

    def remove(self, name: str) -> None:
        """Remove a file; nothing happens if it is not there."""

    def lock(self) -> AbstractContextManager[Callable[[], None]]:
        """Be the only process that writes; yield a call that raises Busy if it no longer is."""


class BackupDirectory:
    is_remote = False

    def __init__(self, root: Path) -> None:
        self.root = root
        self.location = str(root)

    def sizes(self, prefix: str) -> dict[str, int]:
        self.root.stat()
        files = (each for each in (self.root / prefix).rglob("*") if each.is_file())
        return {str(each.relative_to(self.root)): each.stat().st_size for each in files}

    def foreign(self, is_own: Callable[[str], bool]) -> str | None:
        for directory, _, files in os.walk(self.root):
            for each in files:
                name = str((Path(directory) / each).relative_to(self.root))
                if not is_own(name):
                    return name
        return None

    @contextmanager
    def draft(self) -> Iterator[Path]:
        path = self.root / f"{DRAFT}{token_hex(8)}"
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def put(self, draft: Path, name: str) -> None:
        target = self.root / name
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.rename(target)
        sync_directory(target.parent)

    @contextmanager
    def opened(self, name: str) -> Iterator[BinaryIO]:
        with (self.root / name).open("rb") as file:
            yield file

    def path(self, name: str) -> Path | None:
        return self.root / name

    def remove(self, name: str) -> None:
        path = self.root / name
        path.unlink(missing_ok=True)
        with suppress(OSError):  # other files are in it
            path.parent.rmdir()

    @contextmanager
    def lock(self) -> Iterator[Callable[[], None]]:
        if not self.root.exists():  # the permissions of an existing one are of its owner
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.root / LOCK).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Busy(f"Another backup is being written into {self.location}.") from None
            for left in self.root.glob(f"{DRAFT}*"):  # of a process that was killed
                if OWN_DRAFT.fullmatch(left.name):
                    left.unlink()
            yield lambda: None


class BackupBucket:
    """A process holds the lock while its object below `locks/` is there, and is renewed.

    Each process writes its object before it looks for others, so of two at most one continues.
    """

    is_remote = True

    def __init__(self, objects: Objects, location: str, workspace: Path) -> None:
        self._objects = objects
        self._workspace = workspace
        self.location = location

    def sizes(self, prefix: str) -> dict[str, int]:
        found = self._tried(lambda: list(self._objects.all(prefix)))
        return {each.name: each.size_bytes for each in found}

    def foreign(self, is_own: Callable[[str], bool]) -> str | None:
        def first() -> str | None:
            names = (each.name for each in self._objects.all())
            return next((name for name in names if not is_own(name)), None)

        return self._tried(first)

    @contextmanager
    def draft(self) -> Iterator[Path]:
        path = self._workspace / f"{DRAFT}{token_hex(8)}"
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def put(self, draft: Path, name: str) -> None:
        self._tried(partial(self._objects.put, FileContent(draft), name, Event()))

    @contextmanager
    def opened(self, name: str) -> Iterator[BinaryIO]:
        with self.draft() as path:
            try:
                self._tried(partial(self._objects.get, name, path, Event()))
            except Missing:
                raise FileNotFoundError(f"{self.location}/{name} is missing") from None
            with path.open("rb") as file:
                yield file

    def path(self, name: str) -> Path | None:
        return None

    def remove(self, name: str) -> None:
        self._tried(partial(self._objects.remove, name))

    @contextmanager
    def lock(self) -> Iterator[Callable[[], None]]:
        own, ended = f"{LOCKS}{token_hex(8)}", Event()
        self._renew(own)
        renewing = Thread(target=self._renew_until, args=(own, ended), daemon=True)
        try:
            self._require_alone(own)
            renewing.start()
            yield partial(self._require_held, own)
        finally:
            ended.set()
            if renewing.ident is not None:
                renewing.join()
            self.remove(own)

    def _require_alone(self, own: str) -> None:
        found = {
            each.name: each.changed_at
            for each in self._tried(lambda: list(self._objects.all(LOCKS)))
            if OWN_LOCK.fullmatch(each.name)
        }
        now = found.pop(own)  # by the clock of the bucket
        for name, renewed_at in found.items():
            if now - renewed_at < STALE_SECONDS:
                raise Busy(
                    f"Another backup is being written into {self.location}. If that process was "
                    f"killed, its lock {name} ends {STALE_SECONDS:.0f} seconds after its renewal."
                )
            self.remove(name)

    def _require_held(self, own: str) -> None:
        if own not in self.sizes(LOCKS):
            raise Busy(
                f"This backup was suspended or without a network for {STALE_SECONDS:.0f} seconds, "
                f"and another one has been started in {self.location}."
            )

    def _renew_until(self, own: str, ended: Event) -> None:
        while not ended.wait(RENEWED_SECONDS):
            try:
                if own in self.sizes(LOCKS):  # otherwise another process has taken it away
                    self._renew(own)
            except (StorageFailed, OSError) as error:  # also of its draft, on a full disk
                logger.warning("The lock of the backup cannot be renewed: %s", error)

    def _renew(self, own: str) -> None:
        with self.draft() as path:
            path.write_bytes(b"")
            self.put(path, own)

    def _tried(self, call: Callable[[], T]) -> T:
        return retried(call, PATIENT, Event())
