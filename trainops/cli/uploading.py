"""Sends a file in parts, and continues an upload that an earlier command began."""

import hashlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from blake3 import blake3

from trainops.cli import local_files
from trainops.cli.following import LINE_SECONDS, PATIENCE_SECONDS, POLL_SECONDS
from trainops.cli.out import Out
from trainops.cli.session import Session
from trainops.client.problems import ExitCode, Problem, Refused, Unreachable

if TYPE_CHECKING:
    from trainops.client.api import Api
    from trainops.client.responses import Dataset, Upload

PART_BYTES = 8 * 1024**2
BLOCK_BYTES = 1024**2
MEGABYTE = 10**6
MAX_FILENAME = 200  # characters; the end of a longer name is sent
CLEARED = "\r\x1b[2K"  # the line that the cursor is in
AGAIN = "Run the same command again to continue the upload."
WRONG_OFFSET = "WRONG_OFFSET"
LINES = "\n"  # the delimiter of text, of which each line is a row
PASSING = {  # soon another answer: seconds until it is asked for
    "UPLOAD_BUSY": POLL_SECONDS,
    "SHUTTING_DOWN": POLL_SECONDS,
    "SERVICE_UNAVAILABLE": POLL_SECONDS,
    "BUSY": 10.0,
}

Response = TypeVar("Response")


def upload(session: Session, path: Path, name: str, *, is_text: bool = False) -> "Dataset":
    """Send the file and return its dataset.

    is_text: each line is a row; otherwise the server finds out what the file is.

    An open upload of the same content is continued. A server that is away is waited for, for a
    minute without progress. Raises Problem.
    """
    try:
        with local_files.opened(path) as file:
            return Sending(session.api, session.out, file, is_text).send(path.name, name)
    except OSError as error:
        raise Problem(f"{path}: {error.strerror or error}", ExitCode.USAGE) from error
    except Unreachable as problem:
        raise Unreachable(str(problem), hints=(*problem.hints, AGAIN)) from problem


class Sending:
    """One file on its way to the server."""

    def __init__(self, api: "Api", out: Out, file: BinaryIO, is_text: bool) -> None:
        self._api, self._out, self._file, self._is_text = api, out, file, is_text
        self._digest, fingerprint, self._num_bytes = described(file)
        self._fingerprint = f"text {fingerprint}" if is_text else fingerprint
        self._progress = UploadProgress(out, self._num_bytes)

    def send(self, filename: str, name: str) -> "Dataset":
        opened = self._continued() or self._created(filename, name)
        address = f"datasets/uploads/{opened['id']}"
        try:
            with self._progress.shown():
                if opened["dataset_id"] is None:
                    self._send_parts(address, opened["offset"])
                dataset: Dataset = self._patiently(
                    lambda: self._api.post_and_wait(f"{address}/finish")
                )
        except KeyboardInterrupt:
            self._out.note(AGAIN)
            raise
        return dataset

    def _continued(self) -> "Upload | None":
        uploads: list[Upload] = self._api.get("datasets/uploads")
        wanted = (self._digest, self._fingerprint, self._num_bytes)
        for each in uploads:
            if (each["digest"], each["fingerprint"], each["size_bytes"]) == wanted:
                if each["dataset_id"] is None:
                    self._out.note(f"Continuing at {self._progress.text(each['offset'])}.")
                return each
        return None

    def _created(self, filename: str, name: str) -> "Upload":
        body = {
            "filename": filename[-MAX_FILENAME:],
            "name": name,
            "size_bytes": self._num_bytes,
            "digest": self._digest,
            "fingerprint": self._fingerprint,
            **({"delimiter": LINES} if self._is_text else {}),
        }
        created: Upload = self._api.post("datasets/uploads", body)
        return created

    def _send_parts(self, address: str, offset: int) -> None:
        while offset < self._num_bytes:
            self._progress.update(offset)
            self._file.seek(offset)
            part = self._file.read(min(PART_BYTES, self._num_bytes - offset))
            if not part:
                raise Problem("The file became shorter while it was sent.", ExitCode.USAGE)
            offset = self._patiently(partial(self._sent, address, offset, part))

    def _sent(self, address: str, offset: int, part: bytes) -> int:
        """Send a part; return the next offset, which is also known where the response was lost."""
        try:
            return self._api.send_part(address, offset, part)
        except Refused as refused:
            if refused.code != WRONG_OFFSET:
                raise
        opened: Upload = self._api.get(address)
        return opened["offset"]

    def _patiently(self, call: Callable[[], Response]) -> Response:
        """Return the result; repeat the call while the server is away, for a minute, or busy."""
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return call()
            except Unreachable as problem:
                if time.monotonic() > give_up_at:
                    raise
                self._progress.lost(str(problem))
                wait = POLL_SECONDS
            except Refused as refused:
                if refused.code not in PASSING:
                    raise
                wait = PASSING[refused.code]
            time.sleep(wait)


class UploadProgress:
    """Shows e.g. "312 of 4,096 MB": a line that changes, or without a terminal one now and then."""

    def __init__(self, out: Out, num_bytes: int) -> None:
        self._out, self._num_bytes = out, num_bytes
        self._due_at = time.monotonic() + LINE_SECONDS

    @contextmanager
    def shown(self) -> Iterator[None]:
        if not self._out.is_interactive:
            yield
            return
        try:
            yield
        finally:
            sys.stderr.write(CLEARED)

    def text(self, offset: int) -> str:
        return f"{offset // MEGABYTE:,} of {-(-self._num_bytes // MEGABYTE):,} MB"

    def update(self, offset: int) -> None:
        if self._out.is_interactive:
            sys.stderr.write(CLEARED + self.text(offset))
            sys.stderr.flush()
        elif time.monotonic() > self._due_at:
            self._out.note(self.text(offset))
            self._due_at = time.monotonic() + LINE_SECONDS

    def lost(self, problem: str) -> None:
        self._out.note(f"{problem} Trying again.", style="yellow")


def described(file: BinaryIO) -> tuple[str, str, int]:
    """Return the digest of a file, the digest of its first block, and its number of bytes."""
    whole, first, num_bytes = blake3(), hashlib.sha256(), 0
    while block := file.read(BLOCK_BYTES):
        if not num_bytes:
            first.update(block)
        whole.update(block)
        num_bytes += len(block)
    return f"blake3:{whole.hexdigest()}", f"command-line sha256:{first.hexdigest()}", num_bytes
