"""Errors of the ledger."""

from trainops.errors import DomainError

CODE = "PRIVACY_LEDGER_MISMATCH"  # older than ledgers of other kinds; stays for API users


class LedgerBroken(DomainError):
    """Rows of a ledger are not what was written: nothing is computed from them; status 409."""

    def __init__(self, operation_id: str, problem: str) -> None:
        super().__init__(
            CODE,
            f"The ledger of {operation_id} was modified: {problem}. What was recorded is therefore "
            "unknown, and the operation cannot continue. Restore the database from a backup, or "
            "submit a new operation and treat all that this one could record as recorded.",
            {"operation_id": operation_id},
            status=409,
        )
