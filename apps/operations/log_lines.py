"""The log of an operation as lines with times and levels: windows of it, and searches."""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, repeat
from typing import Any, TypedDict

from django.db.models import QuerySet
from django.db.models.functions import Length

from apps.operations.id_order import NO_ID_IS_HIGHER, newest_first, oldest_first
from apps.operations.models import LogChunk
from apps.operations.points.metric_queries import log_keys

WINDOW_CHARS = 256 * 1024
PAGES = (20, 160, 1000)  # chunks whose sizes one query reads: first, second, each further one
MAX_LINE_CHARS = 64 * 1024  # of a line that is searched; the rest of it is skipped
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")

_STAMP = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,6})?Z) +([A-Z]+) +")
_LEVEL = re.compile(r"\b(DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b|\b\w+Warning:")
_RANKS = {"DEBUG": 0, "INFO": 1, "WARN": 2, "WARNING": 2, "ERROR": 3, "CRITICAL": 3, "FATAL": 3}
_TRACEBACK = "Traceback (most recent call last):"


class LogLine(TypedDict):
    """A line of a log. id: of the chunk in which it begins."""

    id: int
    attempt: int
    at: str  # its own time where it is a line about the run, else when it was stored
    level: str  # empty: none
    text: str
    prefix: int  # characters of its own time and level
    continues: bool  # the text belongs to the line before it
    is_hit: bool
    group: int  # of lines without a gap


class LogLines(TypedDict):
    """Lines, oldest first. first_id, last_id: of their chunks."""

    lines: list[LogLine]
    first_id: int
    last_id: int
    has_before: bool
    has_after: bool
    count: int  # of lines that match


@dataclass(frozen=True, slots=True)
class LogSearch:
    """What a line must match. context: lines around each; limit: of matching lines returned."""

    text: str = ""
    level: str = ""  # the lowest
    since: datetime | None = None
    context: int = 0
    limit: int = 200

    def matches(self, line: LogLine) -> bool:
        """Whether the line has the text, in any case, and the level."""
        if self.level and _RANKS.get(line["level"], -1) < _RANKS[self.level]:
            return False
        return self.text.lower() in line["text"].lower()


@dataclass(frozen=True, slots=True)
class _Chunk:
    id: int
    attempt: int
    at: datetime
    text: str


def window(
    operation_id: str,
    *,
    attempt: int | None = None,
    after: int | None = None,
    before: int | None = None,
) -> LogLines:
    """Return the lines after a chunk, or before one, or the last ones: at most 256 KiB."""
    keys, kept = log_keys(operation_id, attempt), LogChunk.objects.all()
    if after is not None:
        found = list(_until_full(_oldest(kept, after, keys)))
    else:
        until = NO_ID_IS_HIGHER if before is None else before - 1
        found = list(_until_full(_newest(kept, until, keys)))[::-1]
    if not found:
        return _none(after or 0)
    first, last = found[0].id, found[-1].id
    earlier = newest_first(kept, until=first - 1, **keys).first()
    is_within = (
        earlier is not None
        and earlier.attempt == found[0].attempt
        and not earlier.text.endswith("\n")
    )
    lines = list(_parsed(found, is_within=is_within, max_chars=WINDOW_CHARS))
    return LogLines(
        lines=lines, first_id=first, last_id=last, has_before=earlier is not None,
        has_after=oldest_first(kept, last, **keys).exists(), count=len(lines),
    )  # fmt: skip


def search(operation_id: str, wanted: LogSearch, *, attempt: int | None = None) -> LogLines:
    """Return the last lines that match, with the lines around each, and how many match in all."""
    kept = LogChunk.objects.all()
    if wanted.since is not None:
        kept = kept.filter(at__gte=wanted.since)
    shown: deque[tuple[int, LogLine]] = deque()  # with their numbers in the log
    before: deque[tuple[int, LogLine]] = deque(maxlen=wanted.context)
    hits: deque[int] = deque()  # numbers of the matching lines that are shown
    count = 0
    chunks = _oldest(kept, 0, log_keys(operation_id, attempt))
    lines = _parsed(chunks, is_within=False, max_chars=MAX_LINE_CHARS)
    for number, line in enumerate(lines):
        if wanted.matches(line):
            shown += [*before, (number, line | {"is_hit": True})]
            before.clear()
            hits.append(number)
            count += 1
            if len(hits) > wanted.limit:
                surplus = hits.popleft()
                while shown[0][0] <= surplus or shown[0][0] < hits[0] - wanted.context:
                    shown.popleft()
        elif hits and number - hits[-1] <= wanted.context:
            shown.append((number, line))
        else:
            before.append((number, line))
    ends = (shown[0][1]["id"], shown[-1][1]["id"]) if shown else (0, 0)
    return LogLines(
        lines=list(_grouped(shown)), first_id=ends[0], last_id=ends[1],
        has_before=count > len(hits), has_after=False, count=count,
    )  # fmt: skip


def _grouped(numbered: Iterable[tuple[int, LogLine]]) -> Iterator[LogLine]:
    """Yield the lines with their groups; a gap in their numbers begins a new one."""
    group, last = 0, None
    for number, line in numbered:
        group += last is not None and number > last + 1
        last = number
        yield line | {"group": group}


def _none(last_id: int) -> LogLines:
    return LogLines(
        lines=[], first_id=0, last_id=last_id, has_before=False, has_after=False, count=0
    )  # fmt: skip


def _oldest(chunks: QuerySet[LogChunk], after: int, keys: Mapping[str, Any]) -> Iterator[_Chunk]:
    """Yield the chunks after an id by keyset pages."""
    for number in chain(PAGES, repeat(PAGES[-1])):
        sizes = _sizes(oldest_first(chunks, after, **keys)[:number])
        if not sizes:
            return
        yield from _read(sizes, "id")
        after = sizes[-1][0]


def _newest(chunks: QuerySet[LogChunk], until: int, keys: Mapping[str, Any]) -> Iterator[_Chunk]:
    """Yield the chunks up to an id by keyset pages, the newest first."""
    for number in chain(PAGES, repeat(PAGES[-1])):
        sizes = _sizes(newest_first(chunks, until=until, **keys)[:number])
        if not sizes:
            return
        yield from _read(sizes, "-id")
        until = sizes[-1][0] - 1


def _sizes(chunks: QuerySet[LogChunk]) -> list[tuple[int, int]]:
    """Return ids and lengths, so that no query reads too much text."""
    return list(chunks.values_list("id", Length("text")))


def _read(sizes: Iterable[tuple[int, int]], order: str) -> Iterator[_Chunk]:
    for ids in _batches(sizes):
        page = LogChunk.objects.filter(id__in=ids).order_by(order)
        yield from (_Chunk(*row) for row in page.values_list("id", "attempt", "at", "text"))


def _batches(sizes: Iterable[tuple[int, int]]) -> Iterator[list[int]]:
    """Yield the ids in groups whose texts have at least WINDOW_CHARS characters, but the last."""
    ids: list[int] = []
    num_chars = 0
    for pk, length in sizes:
        ids.append(pk)
        num_chars += length
        if num_chars >= WINDOW_CHARS:
            yield ids
            ids, num_chars = [], 0
    if ids:
        yield ids


def _until_full(chunks: Iterable[_Chunk]) -> Iterator[_Chunk]:
    num_chars = 0
    for chunk in chunks:
        yield chunk
        num_chars += len(chunk.text)
        if num_chars >= WINDOW_CHARS:
            return


def _parsed(chunks: Iterable[_Chunk], *, is_within: bool, max_chars: int) -> Iterator[LogLine]:
    """Yield the lines; of one that is longer than `max_chars`, that many characters."""
    begun: _Chunk | None = None
    texts: list[str] = []
    num_chars, before = 0, ""
    for chunk in chunks:
        if begun is not None and begun.attempt != chunk.attempt:
            yield _line(begun, texts, before, continues=is_within)
            begun, texts, num_chars, is_within, before = None, [], 0, False, ""
        *ended, rest = chunk.text.split("\n")
        for text in ended:
            texts.append(text[: max_chars - num_chars])
            line = _line(begun or chunk, texts, before, continues=is_within)
            begun, texts, num_chars, is_within = None, [], 0, False
            before = _before(line, before)
            yield line
        if rest:
            begun = begun or chunk
            texts.append(rest[: max_chars - num_chars])
            num_chars = min(max_chars, num_chars + len(rest))
    if begun is not None:
        yield _line(begun, texts, before, continues=is_within)


def _before(line: LogLine, before: str) -> str:
    """Return what the next line needs: "traceback" while one is printed."""
    if line["text"].startswith(_TRACEBACK):
        return "traceback"
    return "traceback" if before and line["text"].startswith(" ") else ""


def _line(chunk: _Chunk, texts: list[str], before: str, *, continues: bool) -> LogLine:
    text = "".join(texts).removesuffix("\r")
    at, level, prefix = chunk.at.isoformat(), _level(text[:200]), 0
    if (stamp := _STAMP.match(text)) and stamp[2] in _RANKS:
        at, level, prefix = stamp[1], _named(stamp[2]), stamp.end()
    elif before or text.startswith(_TRACEBACK):
        level = "ERROR"
    return LogLine(
        id=chunk.id, attempt=chunk.attempt, at=at, level=level, text=text, prefix=prefix,
        continues=continues, is_hit=False, group=0,
    )  # fmt: skip


def _level(text: str) -> str:
    found = _LEVEL.search(text)
    return _named(found[1] or "WARNING") if found else ""


def _named(level: str) -> str:
    return LEVELS[_RANKS[level]]
