"""Reading JSON bodies: strictly, and only what every part of the product can store."""

import math
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import IO, Any

import orjson
from django.conf import settings
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser

from trainops.errors import DomainError

MAX_DEPTH = 50
MAX_ITEMS = 20_000  # a small body of empty lists takes fifty times its size as Python's values
MAX_REPORTED_ITEMS = 250_000  # a worker sends thousands of points at once
# A string, or a sign that begins a value. An unfinished string reaches to the end, so that each
# byte is looked at once.
_STRING_OR_SIGN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[,:\[{]', re.DOTALL)


class NotUsable(ValueError):
    """JSON that is not read; the message goes on after "The body"."""


def read_json(text: bytes | str, max_items: int = MAX_ITEMS) -> object:
    """Return the plain values of a JSON text from outside. Raises NotUsable.

    Refused: bytes that are not UTF-8 JSON, nesting deeper than 50 levels, numbers too large for a
    float, NUL characters (PostgreSQL stores them neither in text nor in JSON), and more than
    `max_items` values and keys.
    """
    body = text.encode("utf-8", "replace") if isinstance(text, str) else text
    if _has_more_items(body, max_items):
        raise NotUsable(f"cannot be used: it holds more than {max_items} values and keys")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise NotUsable(f"is not valid JSON: {error}") from error
    if obstacle := next(_problems(value), None):
        raise NotUsable(f"cannot be used: {obstacle}")
    return value


class JSONParser(BaseParser):
    """A JSON body as plain values, as `read_json` reads them."""

    media_type = "application/json"
    max_items = MAX_ITEMS

    def parse(
        self,
        stream: IO[bytes],
        media_type: str | None = None,
        parser_context: Mapping[str, object] | None = None,
    ) -> Any:
        allowed = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        body = stream.read(allowed + 1)
        if len(body) > allowed:
            problem = f"The body is larger than {allowed} bytes."
            raise DomainError("BODY_TOO_LARGE", problem, {"allowed": allowed}, status=413)
        try:
            return read_json(body, self.max_items)
        except NotUsable as problem:
            raise ParseError(f"The body {problem}.") from problem


class ReportParser(JSONParser):
    """What a worker reports: as strict, with room for thousands of points."""

    max_items = MAX_REPORTED_ITEMS


def _has_more_items(body: bytes, max_items: int) -> bool:
    """Whether the JSON document would have more values and keys; found before it is parsed."""
    found = (match for match in _STRING_OR_SIGN.finditer(body) if body[match.start()] != ord('"'))
    return next(islice(found, max_items, None), None) is not None


def _problems(value: object) -> Iterator[str]:
    """What cannot be used in `value`; walks with a stack, since depth is what may be wrong."""
    waiting = [(value, 1)]
    while waiting:
        current, depth = waiting.pop()
        if depth > MAX_DEPTH:
            yield f"it is nested deeper than {MAX_DEPTH} levels"
            return
        match current:
            case str() if "\x00" in current:
                yield "it contains the character U+0000"
            case float() if not math.isfinite(current):
                yield "it contains a number too large for 64-bit floating point"
            case dict():
                waiting += ((item, depth + 1) for pair in current.items() for item in pair)
            case list():
                waiting += ((item, depth + 1) for item in current)
