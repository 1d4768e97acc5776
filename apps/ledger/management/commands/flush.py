"""`manage.py flush`, which empties the whole database: the one that may empty the ledger, too."""

from typing import Any

from django.core.management.commands import flush
from django.db import connections, transaction

from apps.ledger import guards


class Command(flush.Command):
    def handle(self, **options: Any) -> None:
        """Drop the triggers during the flush where rows are deleted instead of truncated."""
        connection = connections[options["database"]]
        if connection.vendor != "sqlite":
            super().handle(**options)
            return
        with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
            for statement in guards.DROP["sqlite"]:
                cursor.execute(statement)
            super().handle(**options)
            for statement in guards.CREATE["sqlite"]:
                cursor.execute(statement)
