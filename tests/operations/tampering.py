"""What somebody with the database's password can do, and no service does."""

from django.db import connection

from apps.ledger import guards

ACCOUNTS = "ledger_ledgeraccount"


def tampered(*statements):
    """Execute statements on {entries} and {accounts} without the ledger's triggers."""
    filled = [each.format(entries=guards.TABLE, accounts=ACCOUNTS) for each in statements]
    vendor = connection.vendor
    with connection.cursor() as cursor:
        for statement in (*guards.DROP[vendor], *filled, *guards.CREATE[vendor]):
            cursor.execute(statement)
