"""Empties the database after a test that commits, but for the rows that no test changes.

Django's `flush` deletes content types and permissions, too, and creates them again, which takes
nine tenths of its time on SQLite. On PostgreSQL it truncates: each table gets new files, while
`DELETE` is a matter of milliseconds as long as tables are small.
"""

from collections.abc import Sequence
from typing import Any

from django.contrib.contenttypes.management import create_contenttypes
from django.core.management.commands import flush
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.signals import post_migrate

from apps.ledger.management.commands.flush import APPEND_ONLY

UNCHANGED = ("auth_permission", "django_content_type")
OF_PERMISSIONS = "django.contrib.auth.management.create_permissions"


def keep_unchanged_rows() -> None:
    """Call this when the tables were created; every `flush` of this process then keeps them."""
    post_migrate.disconnect(create_contenttypes)
    post_migrate.disconnect(dispatch_uid=OF_PERMISSIONS)
    flush.sql_flush = _statements


def _statements(style: Any, connection: BaseDatabaseWrapper, **options: Any) -> Sequence[str]:
    names = connection.introspection.django_table_names(only_existing=True, include_views=False)
    emptied = [name for name in names if name not in UNCHANGED]
    if connection.vendor != "postgresql":
        return connection.ops.sql_flush(style, emptied, **options)
    # As TRUNCATE does, wait for transactions that write. Only it passes the guards.
    return [
        f"LOCK TABLE {', '.join(emptied)} IN EXCLUSIVE MODE",
        *(
            f"DO $$ BEGIN IF EXISTS (SELECT FROM {each.table}) "
            f"THEN TRUNCATE {each.table}; END IF; END $$"
            for each in APPEND_ONLY
        ),
        "; ".join(f"DELETE FROM {name}" for name in emptied),  # noqa: S608 - names of our tables
    ]
