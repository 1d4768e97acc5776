"""The log of one attempt until it is written: output of its process, lines about the run."""

import codecs
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Literal

Level = Literal["INFO", "WARNING", "ERROR"]
MAX_CHARS = 2000  # of one line
CHUNK_CHARS = 32 * 1024


class AttemptLog:
    """Collects text. A line about the run never stands within a printed line.

    It is inserted before an unfinished line, or starts a new one if a part of that is written.
    Of more text than `max_chars`, the end is kept: a process may print faster than it is written.
    """

    def __init__(
        self,
        max_chars: int,
        clock: Callable[[], float] = time.time,
        *,
        is_within_line: bool = False,
    ) -> None:
        self._max_chars, self._clock = max_chars, clock
        self._num_chars = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._texts: list[str] = []
        self._is_within_line = is_within_line  # after what is written

    def __bool__(self) -> bool:
        return bool(self._texts)

    def add(self, output: bytes, *, is_last: bool = False) -> None:
        """Add what the process printed; a character may be cut by the end of a read."""
        # PostgreSQL's text cannot hold NUL.
        text = self._decoder.decode(output, is_last).replace("\0", "\N{REPLACEMENT CHARACTER}")
        if text:
            self._texts.append(text)
            self._num_chars += len(text)
            if self._num_chars > 2 * self._max_chars:  # seldom, because it copies
                self._shorten()

    def line(self, level: Level, message: str, at: float | None = None) -> None:
        """Add a line about the run. at: Unix time; None: now."""
        moment = datetime.fromtimestamp(self._clock() if at is None else at, UTC)
        stamp = f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
        text = f"{stamp} {level:<7} {' '.join(message.split())[:MAX_CHARS]}\n"
        head, newline, rest = "".join(self._texts).rpartition("\n")
        if not newline and self._is_within_line:
            head, newline, rest = rest, "\n", ""
        self._texts = [head, newline, text, rest]
        self._num_chars = sum(map(len, self._texts))

    def chunks(self) -> list[str]:
        """Return the text in pieces of bounded size; they end with a line where possible."""
        text = "".join(self._texts)
        self._texts = [text] if text else []
        return list(_cut(text))

    def clear(self) -> None:
        """Forget the text, which is written."""
        text = "".join(self._texts)
        self._is_within_line = not text.endswith("\n") if text else self._is_within_line
        self._texts, self._num_chars = [], 0

    def _shorten(self) -> None:
        text = "".join(self._texts)
        self._is_within_line = text[-self._max_chars - 1] != "\n"
        self._texts, self._num_chars = [text[-self._max_chars :]], self._max_chars


def _cut(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = start + CHUNK_CHARS
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or end
        yield text[start:end]
        start = end
