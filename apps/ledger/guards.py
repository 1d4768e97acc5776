"""The guard of the entries of ledgers: the databases themselves refuse to change or delete them."""

from trainops.append_only import AppendOnly

TABLE = "ledger_ledgerentry"
GUARD = AppendOnly(TABLE, "ledger_entry", "the ledger is append-only")
CREATE, DROP = GUARD.create, GUARD.drop
