"""The ledger of an operation, as workers over HTTP read it and append to it.

Workers of older versions exchange entries in another shape (LedgerFields.older), under `privacy` in
a claim and at the address `spending`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from apps.ledger import services as ledgers
from apps.operations.attempts.report_writer import ReportWriter
from apps.operations.errors import NotAllowed
from apps.operations.models import Operation
from trainops.runtime.ledger import Entry, EntryJson


class LedgerJson(TypedDict):
    """The ledger of a claimed operation."""

    secret: str
    entries: list[EntryJson]


class OlderLedgerJson(TypedDict):
    """The same in the shape of older workers."""

    secret: str
    spent: list[Mapping[str, object]]


class ClaimedLedger(TypedDict):
    """The fields of a claim that hold the ledger."""

    ledger: LedgerJson | None
    privacy: OlderLedgerJson | None


def claimed(operation: Operation) -> ClaimedLedger:
    """Return the fields of a claim that hold the ledger; null without one. Raises LedgerBroken."""
    if not operation.uses_ledger:
        return {"ledger": None, "privacy": None}
    fields = operation.ledger_fields
    state = ledgers.state(operation.pk, fields)
    entries = [each.to_json() for each in state.entries]
    found: ClaimedLedger = {
        "ledger": {"secret": state.secret, "entries": entries},
        "privacy": None,
    }
    if fields.older is not None:
        spent = [fields.older.write(each) for each in state.entries]
        found["privacy"] = {"secret": state.secret, "spent": spent}
    return found


def append(operation: Operation, entries: Sequence[Mapping[str, object]]) -> None:
    """Append entries, {"identity", "step", "values"} each, before what they describe happens.

    Raises:
        ValueError: an entry is not valid; none was recorded.
        NotAllowed: the operation has no ledger.
        Fenced: the attempt no longer owns the operation.
    """
    _require_ledger(operation)
    ReportWriter(operation).append([_entry(each) for each in entries])


def append_older(operation: Operation, entries: Sequence[Mapping[str, object]]) -> None:
    """Append entries of the older shape. Raises as `append` does."""
    _require_ledger(operation)
    older = operation.ledger_fields.older
    if older is None:
        raise NotAllowed(
            "LEDGER_SHAPE_NOT_SUPPORTED",
            f"Operations of kind {operation.kind!r} append to their ledger at `ledger`.",
            got="spending", allowed=["ledger"],
        )  # fmt: skip
    try:
        found = [older.read(each) for each in entries]
    except TypeError as error:
        raise ValueError(str(error)) from error
    ReportWriter(operation).append(found)


def _require_ledger(operation: Operation) -> None:
    if not operation.uses_ledger:
        message = f"Operation {operation.pk} has no ledger: its kind and config need none."
        raise NotAllowed("NO_LEDGER", message, operation_id=operation.pk)


def _entry(sent: Mapping[str, Any]) -> Entry:
    expected = {"identity", "step", "values"}
    if not expected <= sent.keys() <= expected | {"is_own"}:
        given = ", ".join(map(str, sent)) or "nothing"
        raise ValueError(f"got an entry with {given:.200}; allowed: {', '.join(sorted(expected))}")
    if not isinstance(sent["values"], Mapping):
        raise ValueError(f"values: got {sent['values']!r:.40}; allowed: an object")
    return Entry(identity=sent["identity"], step=sent["step"], values=sent["values"])
