"""The best value of a metric over the whole run of an operation, as queries and columns name it."""

import re
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Final

from django.db.models import Case, F, FloatField, Q, Value, When, lookups
from django.db.models.expressions import Expression
from django.db.models.functions import Coalesce, NullIf

from apps.operations.search.directions import PREFIXES, by_name, stem
from apps.operations.search.json_values import NumberAt, Path, TextAt
from trainops.kind import KINDS

EXTREMES: Final = "extremes"  # the column with the lowest and the highest value of each metric
_FORM = re.compile(r"best\((?:metric\.)?(.+)\)")


@dataclass(frozen=True, slots=True)
class BestValue:
    """The best value of a metric; none where it is not known whether lower or higher is better."""

    name: str
    column: str = EXTREMES
    path: Path = ()

    @property
    def number(self) -> Expression | F:
        low, high = (NumberAt(EXTREMES, (self.name, place)) for place in (0, 1))
        by_the_name = {"min": low, "max": high, None: Value(None)}[by_name(stem(self.name))]
        alike = [prefix + stem(self.name) for prefix in ("", *PREFIXES)]
        is_monitored = reduce(or_, (_holds("monitor", each, at=()) for each in alike))
        return Case(
            When(is_monitored & Q(lookups.Exact(_mode(), Value("max"))), then=high),
            When(is_monitored, then=low),
            When(reduce(or_, (_holds("monitors", "max", at=(each,)) for each in alike)), then=high),
            When(reduce(or_, (_holds("monitors", "min", at=(each,)) for each in alike)), then=low),
            default=by_the_name,
            output_field=FloatField(),
        )

    @property
    def text(self) -> Expression | F:
        return self.number


def best_of(name: str) -> BestValue | None:
    """Return what `best(METRIC)` names; None for any other name."""
    found = _FORM.fullmatch(name)
    return BestValue(found[1]) if found else None


def _holds(field: str, text: str, *, at: Path) -> Q:
    """Return the condition that a config has this text in a field, or at a path within it."""
    return Q(lookups.Exact(TextAt("config", (field, *at)), Value(text)))


def _mode() -> Coalesce:
    """Return the direction of the monitored metric, as `Operation.better` does."""
    of_kinds = [
        When(kind=name, then=Value(kind.objective.mode))
        for name, kind in KINDS.items()
        if kind.objective.mode
    ]
    given = NullIf(TextAt("config", ("mode",)), Value(""))
    return Coalesce(given, Case(*of_kinds, default=Value("min")))
