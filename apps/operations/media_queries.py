"""What stands of an operation's media, and the content of one item."""

import re
from itertools import groupby
from operator import itemgetter
from typing import TypedDict

from django.db.models import Count, Max
from django.http import HttpResponse

from apps.operations.errors import MediaNotFound
from apps.operations.models import Media
from trainops.media.items import CONTENT_TYPES

SUFFIXES = {"image/png": "png", "audio/wav": "wav", "application/json": "json"}
RANGE = re.compile(r"bytes=(\d{0,15})-(\d{0,15})")


class MediaRow(TypedDict):
    """The columns of an item, without its content."""

    id: int
    name: str
    type: str
    step: int
    position: int
    attempt: int
    index: int
    caption: str
    num_bytes: int


FIELDS = tuple(MediaRow.__annotations__)


class MediaItemJson(TypedDict):
    """One item; its content is served by its id."""

    id: int
    caption: str
    num_bytes: int


class MediaStepJson(TypedDict):
    """What was logged together: in one step, by one attempt."""

    step: int
    attempt: int
    type: str
    items: list[MediaItemJson]


class NamedMediaJson(TypedDict):
    """All steps of one name, in their order."""

    name: str
    steps: list[MediaStepJson]


def listed(operation_id: str, name: str | None = None) -> list[NamedMediaJson]:
    """Return what stands, by name and step, without its content."""
    rows = Media.objects.filter(operation_id=operation_id, retired_by=None)
    rows = rows if name is None else rows.filter(name=name)
    in_order = rows.order_by("name", "position", "attempt", "index").values(*FIELDS)
    return [
        {"name": each, "steps": [_step(list(items)) for _, items in groupby(named, _place)]}
        for each, named in groupby(in_order, itemgetter("name"))
    ]


_place = itemgetter("position", "attempt")


def _step(rows: list[MediaRow]) -> MediaStepJson:
    first = rows[0]
    return {
        "step": first["step"],
        "attempt": first["attempt"],
        "type": first["type"],
        "items": [
            {"id": row["id"], "caption": row["caption"], "num_bytes": row["num_bytes"]}
            for row in rows
        ],
    }


def version(operation_id: str) -> str:
    """Return a text that is another whenever `listed` is; empty where there is nothing."""
    standing = Media.objects.filter(operation_id=operation_id, retired_by=None)
    counts = standing.aggregate(newest=Max("id"), number=Count("id"))
    return f"{counts['newest']}-{counts['number']}" if counts["number"] else ""


def found(operation_id: str, media_id: int) -> Media:
    """Return an item, also one that is retired. Raises MediaNotFound."""
    row = Media.objects.filter(operation_id=operation_id, pk=media_id).first()
    if row is None:
        raise MediaNotFound(operation_id, media_id)
    return row


def response(row: Media, asked_range: str = "") -> HttpResponse:
    """Return the content of an item as a file, or the part of it that a Range header asks for.

    Its type follows from what was logged, never from the bytes.
    """
    content, content_type = bytes(row.content), CONTENT_TYPES.get(row.type, "application/json")
    answer = HttpResponse(content, content_type=content_type)
    if part := _part(asked_range, len(content)):
        first, last = part
        answer = HttpResponse(content[first : last + 1], content_type=content_type, status=206)
        answer["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
    name = f"{row.step:010}-{row.pk}.{SUFFIXES[content_type]}"
    answer["Accept-Ranges"] = "bytes"
    answer["Content-Disposition"] = f'inline; filename="{name}"'
    answer["X-Content-Type-Options"] = "nosniff"
    answer["Cache-Control"] = "private, max-age=3600, immutable"
    return answer


def _part(asked: str, size: int) -> tuple[int, int] | None:
    """Return the first and the last byte that are asked for; None: all, as where it is unclear."""
    found = RANGE.fullmatch(asked.strip())
    if found is None or not any(found.groups()):
        return None
    start, end = found.groups()
    if not start:
        first, last = max(0, size - int(end)), size - 1
    else:
        first, last = int(start), min(int(end), size - 1) if end else size - 1
    return (first, last) if first <= last else None
