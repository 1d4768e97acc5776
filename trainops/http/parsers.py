"""Reading JSON bodies: strictly, and only what every part of the product can store."""

import math
from collections.abc import Iterator, Mapping
from typing import IO, Any

import orjson
from django.conf import settings
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser

from trainops.errors import Refusal

MAX_DEPTH = 50


class JSONParser(BaseParser):
    """A JSON body as plain values.

    Refused, with what is wrong: bytes that are not UTF-8 JSON, nesting deeper than 50 levels,
    numbers too large for a float, and NUL characters (PostgreSQL stores them neither in text nor in
    JSON).
    """

    media_type = "application/json"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        allowed = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        body = stream.read(allowed + 1)
        if len(body) > allowed:
            problem = f"The body is larger than {allowed} bytes."
            raise Refusal("BODY_TOO_LARGE", problem, {"allowed": allowed}, status=413)
        try:
            value = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise ParseError(f"The body is not valid JSON: {error}") from error
        if obstacle := next(_problems(value), None):
            raise ParseError(f"The body cannot be used: {obstacle}.")
        return value


def _problems(value: Any) -> Iterator[str]:
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
