"""Orders of a list: by a column, a config field, or the latest value of a metric."""

import re

from django.db.models import Expression, F, FloatField, OrderBy
from django.db.models.functions import Cast, NullIf

from apps.operations.search.best import BestValue
from apps.operations.search.language import QUOTED, VALUE
from apps.operations.search.values import Named, named

_VALUE = re.compile(rf"{VALUE}|{QUOTED}")
MAX_LENGTH = 80
ORDERS: dict[str, Expression | F] = {  # name -> expression
    "created": F("created_at"),
    "started": F("started_at"),
    "finished": F("finished_at"),
    "name": F("name"),
    "state": F("state"),
    "owner": F("owner__username"),
    "worker": F("worker_id"),
    "progress": Cast("step", FloatField()) / NullIf(Cast("total_steps", FloatField()), 0.0),
}
FORM = (
    f"{', '.join(ORDERS)}, best(METRIC), a metric or a config field; descending with a minus sign"
)


def is_value(text: str) -> bool:
    """Whether `text` may name a metric, a config field or a column, perhaps quoted."""
    return len(text) <= MAX_LENGTH and _VALUE.fullmatch(text) is not None


def is_sort(text: str) -> bool:
    """Whether `text` names an order: a value; descending with a minus sign."""
    return len(text) <= MAX_LENGTH and is_value(text.removeprefix("-"))


def value_of(sort: str) -> Named | BestValue | None:
    """Return the value that an order names; None for one of ORDERS."""
    name = sort.removeprefix("-")
    return None if name in ORDERS else named(name)


def ordering(sort: str) -> list[OrderBy]:
    """Return the order that `sort` names; operations without the value are last, in any order."""
    value = value_of(sort)
    if value is None:
        keys: list[Expression | F] = [ORDERS[sort.removeprefix("-")]]
    else:
        keys = [value.number, value.text] if value.path else [value.number]
    by = [OrderBy(key, descending=sort.startswith("-"), nulls_last=True) for key in keys]
    return [*by, F("created_at").desc(), F("id").desc()]
