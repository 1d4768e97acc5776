"""Ids as people type them: whole, or a beginning or end that fits only one operation."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from trainops.client.api import Api, RowPage
from trainops.client.problems import ExitCode, Problem

if TYPE_CHECKING:
    from trainops.client.responses import Checkpoint

OPERATION_ID = re.compile(r"op_[a-z]+_\d{8}_\d{6}_[0-9a-f]{6}")
STUDY_ID = re.compile(r"st_\d{8}_\d{6}_[0-9a-f]{6}")
_MOST, _MOST_STUDIES = 50, 500
MIN_PREFIX, MIN_SUFFIX = 8, 4  # characters of an id that are enough to name it


class NamedRow(TypedDict, total=False):
    """A row of a list: an operation has all keys, a study no `operation_id`."""

    operation_id: str
    id: str
    name: str


def operation_id(api: Api, typed: str) -> str:
    """Return the id that `typed` is, begins or ends; a whole id costs no request.

    Raises Problem: it is too short, or fits none or several; the hints are those that it fits.
    """
    if OPERATION_ID.fullmatch(typed):
        return typed
    _require_length(typed, "operation")
    found = api.rows("operations", q="archived:any", search=typed, limit=_MOST)
    return _only(found, typed, "operation")


def short_ids(ids: Sequence[str]) -> list[str]:
    """Return the last part of each id, or as many of its last parts as no other of them has."""
    parts = [each.split("_") for each in ids]
    shown = [""] * len(ids)
    for num_parts in range(1, max(map(len, parts), default=0) + 1):
        ends = ["_".join(each[-num_parts:]) for each in parts]
        counts = Counter(ends)
        for index, end in enumerate(ends):
            shown[index] = shown[index] or (end if counts[end] == 1 else "")
    return [end or whole for end, whole in zip(shown, ids, strict=True)]


BEST = "best"
ALIASES = ("latest", BEST)


def checkpoint_named(api: Api, typed: str) -> tuple[str, str | None]:
    """Return the ids of an operation and of its checkpoint that `typed` names.

    A checkpoint's own id begins with its operation's; `OPERATION:latest`, `OPERATION:best` and
    `OPERATION:best:METRIC` name one, too. None for the checkpoint where only an operation is named.
    Raises Problem.
    """
    front, colon, alias = typed.partition(":")
    if colon:
        best, of, metric = alias.partition(":")
        if metric and best == BEST:
            return operation_id(api, front), f"{best}{of}{metric.replace('/', '_')}"
        if alias not in ALIASES:
            allowed = ", ".join(f"{front}:{each}" for each in (*ALIASES, f"{BEST}:METRIC"))
            raise Problem(f"got {typed!r}; allowed: {allowed}", ExitCode.USAGE)
        return operation_id(api, front), alias
    if "-" in typed:
        front = typed.partition("-")[0].removeprefix("op_")
        return operation_id(api, f"op_{front}"), typed
    return operation_id(api, typed), None


def study_id(api: Api, typed: str) -> str:
    """Return the id of the study that `typed` is, begins or ends, as operation_id does."""
    if STUDY_ID.fullmatch(typed):
        return typed
    _require_length(typed, "study")
    found: RowPage[NamedRow] = api.rows("studies", limit=_MOST_STUDIES)
    return _only(RowPage(found.rows), typed, "study")


def _require_length(typed: str, what: str) -> None:
    if len(typed.strip()) < MIN_SUFFIX:
        raise Problem(
            f"No {what} matches {typed!r}; allowed: its id, at least the first {MIN_PREFIX} or "
            f"the last {MIN_SUFFIX} characters.",
            ExitCode.NOT_FOUND,
        )


def _fits(found: str, typed: str) -> bool:
    return found.endswith(typed) or (len(typed) >= MIN_PREFIX and found.startswith(typed))


def _only(found: RowPage[NamedRow], typed: str, what: str) -> str:
    names = {str(row.get("operation_id") or row["id"]): row.get("name") for row in found.rows}
    fitting = [each for each in names if _fits(each, typed)]
    several = {"operation": "operations", "study": "studies"}[what]
    if not fitting:
        raise Problem(f"No {what} matches {typed!r}.", ExitCode.NOT_FOUND)
    if len(fitting) > 1 or found.has_more:
        raise Problem(
            f"{typed!r} matches several {several}; type more of the id.",
            ExitCode.USAGE,
            hints=tuple(f"{each}  {names[each] or ''}".rstrip() for each in fitting[:10]),
        )
    return fitting[0]


def checkpoint_path(api: Api, reference: str) -> str:
    """Return a checkpoint's address; an operation with exactly one checkpoint names it.

    Raises Problem where none is named.
    """
    is_path = "/" in reference.partition(f":{BEST}:")[0]
    found, chosen = ("", None) if is_path else checkpoint_named(api, reference)
    if found and chosen is None:
        page: RowPage[Checkpoint] = api.rows("checkpoints", operation_id=found, limit=2)
        chosen = page.rows[0]["checkpoint_id"] if len(page.rows) == 1 else None
    if chosen is None:
        raise Problem(
            f"got {reference!r}; allowed: a checkpoint id (see `checkpoints ls`), or "
            "ID:latest, ID:best or ID:best:METRIC with the id of an operation; the id alone "
            "if the operation has exactly one checkpoint.",
            ExitCode.NOT_FOUND,
        )
    return f"checkpoints/{found}/{chosen}"
