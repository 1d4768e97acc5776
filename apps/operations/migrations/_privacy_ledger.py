"""The chain and the triggers of the privacy ledger as of its own tables (0011 to 0017).

Migrations compute digests by this module: it must never change. Present code is in apps.ledger.
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
    texts = (_text(*each) for each in zip(FIELDS, values, strict=True))
    return _digest(secret, [previous, str(number), str(attempt), moment, *texts])


def _text(name: str, value: Any) -> str:
    """Return the same text for what is written and for what any database gives back."""
    return repr(float(value) + 0.0) if name in _FLOATS else str(value)  # -0.0 is 0.0 in SQLite


def _digest(secret: str, texts: Sequence[str]) -> str:
    joined = "".join(f"{len(each)}:{each}" for each in texts)
    return hashlib.blake2b(joined.encode(), key=secret.encode()[:64], digest_size=32).hexdigest()


TABLE = "operations_privacyentry"
MESSAGE = "the privacy ledger is append-only"

CREATE = {
    "postgresql": [
        f"""CREATE FUNCTION refuse_change_of_ledger() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN
            RAISE EXCEPTION '{MESSAGE}' USING ERRCODE = 'integrity_constraint_violation';
        END $$""",
        f"""CREATE TRIGGER ledger_is_append_only BEFORE UPDATE OR DELETE ON {TABLE}
        FOR EACH ROW EXECUTE FUNCTION refuse_change_of_ledger()""",
    ],
    "sqlite": [
        f"""CREATE TRIGGER ledger_refuses_{what.lower()} BEFORE {what} ON {TABLE}
        BEGIN SELECT RAISE(ABORT, '{MESSAGE}'); END"""
        for what in ("UPDATE", "DELETE")
    ],
}  # fmt: skip
DROP = {
    "postgresql": [
        f"DROP TRIGGER IF EXISTS ledger_is_append_only ON {TABLE}",
        "DROP FUNCTION IF EXISTS refuse_change_of_ledger()",
    ],
    "sqlite": [f"DROP TRIGGER IF EXISTS ledger_refuses_{what}" for what in ("update", "delete")],
}
