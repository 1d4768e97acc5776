"""The envelope around every answer of the API, and how it becomes bytes.

Success: `{"success": true, "data": …}`; lists, paginated or not, add `total_count`, `next` and
`previous`.
Failure: `{"success": false, "error": {"code", "message", "details"}}`.

JSON has no NaN and no infinities. Here they are the strings "NaN", "Infinity" and "-Infinity":
nothing is lost, every JSON parser reads the rest, and `Number(x)` in JavaScript and `float(x)` in
Python give the value back. Only numbers are written so: a field that holds text is never mistaken
for one. A hot endpoint may hand over an `orjson.Fragment` of ready bytes; it is passed through
unseen.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import PurePath
from typing import Any

import orjson
from django.http import HttpResponse
from django.utils.functional import Promise
from rest_framework.renderers import BaseRenderer

OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_UTC_Z


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list. `total_count` is None where counting would cost a scan."""

    rows: object
    total_count: int | None = None
    next: str | None = None
    previous: str | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """The body of every answer that is not a success."""

    code: str
    message: str
    details: Mapping[str, object]


def enveloped(payload: object) -> dict[str, object]:
    match payload:
        case Failure(code, message, details):
            error = {"code": code, "message": message, "details": dict(details)}
            return {"success": False, "error": error}
        case Page(rows, total_count, following, previous):
            return {
                "success": True,
                "data": rows,
                "total_count": total_count,
                "next": following,
                "previous": previous,
            }
        case list():
            return enveloped(Page(payload, len(payload)))
        case _:
            return {"success": True, "data": payload}


def encode(payload: object) -> bytes:
    """`payload` in its envelope, as JSON. Never fails on a value that a person sent."""
    body = _finite(enveloped(payload))
    try:
        return orjson.dumps(body, default=_default, option=OPTIONS)
    except orjson.JSONEncodeError:  # integers beyond 64 bits, lone surrogates
        return json.dumps(body, default=_default, allow_nan=False).encode()


def answer(failure: Failure, status: int, headers: Mapping[str, str] | None = None) -> HttpResponse:
    """The same failure whatever the view renders when all goes well."""
    return HttpResponse(
        encode(failure), status=status, content_type="application/json", headers=headers
    )


class EnvelopeRenderer(BaseRenderer):
    """Renders what a view returned into the envelope. The only renderer of the API."""

    media_type = "application/json"
    format = "json"
    charset = None
    render_style = "binary"

    def render(
        self,
        data: object,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> bytes:
        response = (renderer_context or {}).get("response")
        if response is not None and response.status_code == 204:
            return b""
        return encode(data)


def _finite(value: object) -> object:
    """`value` with non-finite floats spelled out; containers are copied only on the way to one."""
    if isinstance(value, float):
        return value if math.isfinite(value) else _spelled(value)
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_finite(item) for item in value]
    return value


def _spelled(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _default(value: object) -> object:
    if isinstance(value, Promise | Decimal | PurePath):
        return str(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    if hasattr(value, "isoformat"):  # reached only from the standard library's encoder
        return value.isoformat()
    if hasattr(value, "__iter__"):  # querysets, generators
        return [_finite(item) for item in value]
    raise TypeError(f"{type(value).__name__} is not JSON-serializable")
