"""The log file of one program: what a person should see of it, and its size.

Programs write to the file themselves, not to a pipe of ours: their output survives us, and a slow
terminal never blocks them.
"""

import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

MOST_BYTES = 32 * 1024**2
SHOWN_AT_ONCE = 5
READ_BYTES = 256 * 1024
SAME_LINE_SECONDS = 60.0


class Tail:
    """Follows one file from its present end."""

    def __init__(self, path: Path, notable: re.Pattern[str], *, most_bytes: int = MOST_BYTES):
        self._path = path
        self._notable = notable
        self._most_bytes = most_bytes
        self._file = path.open("a+b")
        self._rest = b""
        self._shown_at: dict[str, float] = {}
        self.last_line = ""  # the last one that said something

    def notable_lines(self) -> Iterator[str]:
        """New lines worth showing: a few at a time, the others counted."""
        found = [line for line in self._new_lines() if self._is_news(line)]
        yield from found[:SHOWN_AT_ONCE]
        if len(found) > SHOWN_AT_ONCE:
            yield f"… and {len(found) - SHOWN_AT_ONCE} more such lines in {self._path}"

    def close(self) -> None:
        self._file.close()

    def _is_news(self, line: str) -> bool:
        """Notable, and not what was shown a moment ago with another time or number in it."""
        if not self._notable.search(line):
            return False
        now, text = time.monotonic(), re.sub(r"\d+", "", line)
        recent = {t: at for t, at in self._shown_at.items() if now - at < SAME_LINE_SECONDS}
        self._shown_at = {text: now} | recent
        return text not in recent

    def _new_lines(self) -> Iterator[str]:
        read = self._file.read(READ_BYTES)
        *lines, self._rest = (self._rest + read).split(b"\n")
        for raw in lines:
            line = raw.decode(errors="replace").rstrip()
            self.last_line = line or self.last_line
            yield line
        if self._file.tell() > self._most_bytes:
            self._rotate()

    def _rotate(self) -> None:
        """Keep one older file. Copied and emptied, since the program holds this one open.

        What is written between the copy and the emptying is lost: a line or two of a log.
        """
        shutil.copyfile(self._path, self._path.with_suffix(".log.1"))
        os.truncate(self._path, 0)
        self._file.seek(0)
