"""Triggers by which the databases themselves refuse to change or delete the rows of a table.

`TRUNCATE`, on PostgreSQL, and dropping the table stay possible: they are for a whole database that
is thrown away, as `manage.py flush` does. A later migration in which Django creates the table anew
on SQLite loses the triggers there, and has to create them again (tests/operations/test_chain.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AppendOnly:
    """The guard of one table. `name` begins the names of its triggers, in the singular."""

    table: str
    name: str
    message: str

    @property
    def create(self) -> Mapping[str, Sequence[str]]:
        """Return the statements that create it, by database."""
        function = f"refuse_change_of_{self.name}"
        return {
            "postgresql": [
                f"""CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN
                    RAISE EXCEPTION '{self.message}'
                    USING ERRCODE = 'integrity_constraint_violation';
                END $$""",
                f"""CREATE TRIGGER {self.name}_is_append_only
                BEFORE UPDATE OR DELETE ON {self.table}
                FOR EACH ROW EXECUTE FUNCTION {function}()""",
            ],
            "sqlite": [
                f"""CREATE TRIGGER {self.name}_refuses_{what.lower()} BEFORE {what} ON {self.table}
                BEGIN SELECT RAISE(ABORT, '{self.message}'); END"""
                for what in ("UPDATE", "DELETE")
            ],
        }

    @property
    def drop(self) -> Mapping[str, Sequence[str]]:
        """Return the statements that drop it, by database."""
        return {
            "postgresql": [
                f"DROP TRIGGER IF EXISTS {self.name}_is_append_only ON {self.table}",
                f"DROP FUNCTION IF EXISTS refuse_change_of_{self.name}()",
            ],
            "sqlite": [
                f"DROP TRIGGER IF EXISTS {self.name}_refuses_{what}"
                for what in ("update", "delete")
            ],
        }
