"""Which config fields a metric depends on, among completed operations.

A forest is grown in a confined process, so that no thread of the web computes: one at a time, and
its shares are kept for a day under the digest of what it was grown from.
"""

import hashlib
import json
import logging
from collections.abc import Sequence
from typing import TypedDict

from django.core.cache import cache

from apps.operations.comparisons.dimensions import FIELD, Dimension
from apps.operations.comparisons.selection import NotComparable
from trainops.concurrency_limit import ConcurrencyLimit, ServerBusy
from trainops.confined.calling import ConfinedProcessFailed, call
from trainops.confined.limits import Limits
from trainops.errors import DomainError

logger = logging.getLogger(__name__)
MIN_OPERATIONS, MAX_OPERATIONS = 8, 500
MAX_FIELDS = 40
LIMITS = Limits(memory_bytes=2 * 1024**3, seconds=60, file_bytes=2**20)
KEPT_SECONDS = 24 * 3600
RETRY_SECONDS = 3
_limit = ConcurrencyLimit(1)


class FieldShare(TypedDict):
    """The part of the target's variance that a forest explains by a field, from 0 to 1."""

    field: str
    share: float


class Importance(TypedDict):
    """Shares, the largest first. problem: why there are none, or empty."""

    target: str
    num_operations: int
    shares: list[FieldShare]
    problem: str


class ImportanceBusy(DomainError):
    def __init__(self) -> None:
        super().__init__(
            "BUSY",
            "The server is computing another importance. Try again in a moment.",
            {"retry_after_seconds": RETRY_SECONDS},
            status=503,
            retry_after_seconds=RETRY_SECONDS,
        )


class ImportanceFailed(DomainError):
    def __init__(self) -> None:
        super().__init__(
            "IMPORTANCE_FAILED",
            "Computing the importance failed; the server's log has the reason.",
            status=500,
        )


def of(dimensions: Sequence[Dimension], are_completed: Sequence[bool], target: str) -> Importance:
    """Return the importance of the fields for `target`, the key of a value; "" if there is none.

    Operations that have not completed, or without a finite target, do not count.

    Raises:
        NotComparable: there is no such value.
        ImportanceBusy: another one is being computed.
        ImportanceFailed: the process failed.
    """
    judged = _value(dimensions, target)
    if judged is None:
        return _without(target, 0, "No metric has been measured yet.")
    pairs = zip(judged["values"], are_completed, strict=True)
    rows = [i for i, (value, done) in enumerate(pairs) if done and value is not None]
    rows = sorted(rows[:MAX_OPERATIONS], key=lambda i: _content(dimensions, i))
    if len(rows) < MIN_OPERATIONS:
        problem = f"{len(rows)} completed operations with a value; at least {MIN_OPERATIONS} needed"
        return _without(target, len(rows), f"{problem}.")
    targets = [judged["values"][i] for i in rows]
    if len(set(targets)) == 1:
        return _without(target, len(rows), "All operations have the same value.")
    fields = {
        each["key"]: values
        for each in dimensions
        if each["what"] == FIELD and len(set(values := [each["values"][i] for i in rows])) > 1
    }
    fields = dict(sorted(fields.items(), key=lambda item: -len(set(item[1])))[:MAX_FIELDS])
    if not fields:
        return _without(target, len(rows), "No config field differs between these operations.")
    shares = _shares({"fields": fields, "targets": targets})
    ordered = sorted(shares.items(), key=lambda item: (-item[1], item[0]))
    found = [FieldShare(field=name, share=share) for name, share in ordered]
    return {"target": target, "num_operations": len(rows), "shares": found, "problem": ""}


def _content(dimensions: Sequence[Dimension], i: int) -> str:
    """Return the values of an operation as text: a forest depends on the order of its rows."""
    return json.dumps([each["values"][i] for each in dimensions])


def _without(target: str, num_operations: int, problem: str) -> Importance:
    return {"target": target, "num_operations": num_operations, "shares": [], "problem": problem}


def _value(dimensions: Sequence[Dimension], target: str) -> Dimension | None:
    """Return the dimension of a value; None if there is no value at all. Raises NotComparable."""
    values = {each["key"]: each for each in dimensions if each["what"] != FIELD}
    if not target and not values:
        return None
    if target not in values:
        known = ", ".join(values) or "none yet"
        raise NotComparable("target", f"got {target[:80]!r}; allowed: {known}"[:1000])
    return values[target]


def _shares(request: dict[str, object]) -> dict[str, float]:
    digest = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
    kept: dict[str, float] | None = cache.get(key := f"importance:{digest}")
    if kept is not None:
        return kept
    try:
        with _limit.taken(""):
            shares: dict[str, float] = call("apps.operations.comparisons.forest", request, LIMITS)
    except ServerBusy:
        raise ImportanceBusy from None
    except ConfinedProcessFailed as error:
        logger.warning("computing an importance failed: %s\n%s", error, error.log)
        raise ImportanceFailed from error
    cache.set(key, shares, KEPT_SECONDS)
    return shares
