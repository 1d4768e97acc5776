"""The hash chain of a ledger: what an entry's digest is taken over.

Each digest follows from the one before it, so a row that was changed, removed, inserted or moved is
found, and named, when the digests are computed again. It is keyed with the ledger's secret: rows of
one ledger are not valid in another. What these functions return must never change.
"""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime


def beginning(secret: str, operation_id: str, ancestors: Sequence[str]) -> str:
    """Return the digest before the first entry: of the operation's id and its ancestors."""
    return _digest(secret, ["beginning", operation_id, *ancestors])


def digest(
    secret: str, previous: str, *, number: int, attempt: int, recorded_at: datetime,
    texts: Sequence[str],
) -> str:  # fmt: skip
    """Return the digest (64 hexadecimal digits) of the entry with these LedgerFields.texts."""
    moment = recorded_at.astimezone(UTC).isoformat(timespec="microseconds")
    return _digest(secret, [previous, str(number), str(attempt), moment, *texts])


def _digest(secret: str, texts: Sequence[str]) -> str:
    joined = "".join(f"{len(each)}:{each}" for each in texts)
    return hashlib.blake2b(joined.encode(), key=secret.encode()[:64], digest_size=32).hexdigest()
