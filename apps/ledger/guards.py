"""Triggers by which the databases themselves refuse to change or delete entries of a ledger.

`TRUNCATE`, on PostgreSQL, and dropping the table stay possible: they are for a whole database that
is thrown away, as `manage.py flush` does. A later migration in which Django creates the table anew
on SQLite loses the triggers there, and has to create them again (tests/operations/test_chain.py).
"""

TABLE = "ledger_ledgerentry"
MESSAGE = "the ledger is append-only"

CREATE = {
    "postgresql": [
        f"""CREATE FUNCTION refuse_change_of_ledger_entry() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN
            RAISE EXCEPTION '{MESSAGE}' USING ERRCODE = 'integrity_constraint_violation';
        END $$""",
        f"""CREATE TRIGGER ledger_entry_is_append_only BEFORE UPDATE OR DELETE ON {TABLE}
        FOR EACH ROW EXECUTE FUNCTION refuse_change_of_ledger_entry()""",
    ],
    "sqlite": [
        f"""CREATE TRIGGER ledger_entry_refuses_{what.lower()} BEFORE {what} ON {TABLE}
        BEGIN SELECT RAISE(ABORT, '{MESSAGE}'); END"""
        for what in ("UPDATE", "DELETE")
    ],
}  # fmt: skip
DROP = {
    "postgresql": [
        f"DROP TRIGGER IF EXISTS ledger_entry_is_append_only ON {TABLE}",
        "DROP FUNCTION IF EXISTS refuse_change_of_ledger_entry()",
    ],
    "sqlite": [
        f"DROP TRIGGER IF EXISTS ledger_entry_refuses_{what}" for what in ("update", "delete")
    ],
}
