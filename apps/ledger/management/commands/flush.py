"""`manage.py flush`, which empties the whole database: also the tables that are append-only."""

from typing import Any

from django.core.management.commands import flush
from django.db import connections, transaction

from apps.ledger import guards
from trainops.http import audit_guard

APPEND_ONLY = (guards.GUARD, audit_guard.GUARD)


class Command(flush.Command):
    def handle(self, **options: Any) -> None:
        """Drop the triggers during the flush where rows are deleted instead of truncated."""
        connection = connections[options["database"]]
        if connection.vendor != "sqlite":
            super().handle(**options)
            return
        with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
            for statement in (each for guard in APPEND_ONLY for each in guard.drop["sqlite"]):
                cursor.execute(statement)
            super().handle(**options)
            for statement in (each for guard in APPEND_ONLY for each in guard.create["sqlite"]):
                cursor.execute(statement)
