"""The privacy ledger's hash chain: what an entry's digest is taken over.

Each digest follows from the one before it, so a row that was changed, left out, put in or moved is
found, and named, by whoever computes them anew. It is keyed with the ledger's secret: rows of one
ledger do not pass in another.

Migrations compute digests by this module as well: what it returns must never change.
"""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

FIELDS = (
    "noise", "step", "round", "client", "level", "noise_multiplier", "sample_rate", "steps",
    "carried",
)  # fmt: skip
_FLOATS = frozenset({"noise_multiplier", "sample_rate", "carried"})


def beginning(secret: str, operation_id: str, ancestors: Sequence[str]) -> str:
    """Return the digest before the first entry: of the operation's id and its ancestors."""
    return _digest(secret, ["beginning", operation_id, *ancestors])


def digest(
    secret: str, previous: str, *, number: int, attempt: int, released_at: datetime,
    values: Sequence[Any],
) -> str:  # fmt: skip
    """Return the digest (64 hexadecimal digits) of the entry with these values of FIELDS."""
    moment = released_at.astimezone(UTC).isoformat(timespec="microseconds")
    told = (_text(*each) for each in zip(FIELDS, values, strict=True))
    return _digest(secret, [previous, str(number), str(attempt), moment, *told])


def _text(name: str, value: Any) -> str:
    """Return the same text for what is written and for what any database gives back."""
    return repr(float(value) + 0.0) if name in _FLOATS else str(value)  # -0.0 is 0.0 in SQLite


def _digest(secret: str, texts: Sequence[str]) -> str:
    joined = "".join(f"{len(each)}:{each}" for each in texts)
    return hashlib.blake2b(joined.encode(), key=secret.encode()[:64], digest_size=32).hexdigest()
