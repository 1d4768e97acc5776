"""The database's clock: the only one that every process agrees on."""

from datetime import timedelta
from typing import Any

from django.db.models import DateTimeField, ExpressionWrapper
from django.db.models.functions import Now


class DatabaseNow(Now):
    """The moment of the statement, written as Django writes every other moment.

    SQLite compares moments as texts. Django's own Now() has three digits after the second there
    and a parameter has six, or none at a whole second, so that a row would be later than itself.
    """

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        moment = "STRFTIME('%%%%Y-%%%%m-%%%%d %%%%H:%%%%M:%%%%f000', 'NOW')"
        template = f"REPLACE({moment}, '.000000', '')"
        return self.as_sql(compiler, connection, template=template, **extra)


def seconds_from_now(seconds: float) -> Any:
    """Return an expression for now plus N seconds, which may be negative."""
    moment = DatabaseNow() + timedelta(seconds=seconds)
    return ExpressionWrapper(moment, output_field=DateTimeField())
