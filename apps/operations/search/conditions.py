"""From the terms of a query to a condition in the database."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db.models import BooleanField, Case, Exists, OuterRef, Q, Value, When, lookups
from django.utils import timezone

from apps.operations import attention
from apps.operations.indexes import IS_ACTIVE, IS_STOPPED, is_
from apps.operations.lifecycle import OLDER_REASONS, Reason, State
from apps.operations.models import Attempt, Tag
from apps.operations.requests.access import Person, has_checkpoint
from apps.operations.search import by_value
from apps.operations.search.groups import without
from apps.operations.search.language import SIGNS, Term, parse
from apps.operations.search.values import METRIC, is_latest, named
from trainops.kind import KINDS

_AGE = re.compile(r"[0-9]{1,4}[mhdw]")
MANY = 1000  # operations with a tag
ME = "me"  # as an owner: the user who asks
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_LOOKUPS: dict[str, Callable[..., Any]] = {
    "<": lookups.LessThan,
    "<=": lookups.LessThanOrEqual,
    ">": lookups.GreaterThan,
    ">=": lookups.GreaterThanOrEqual,
    "=": lookups.Exact,
    "!=": lookups.Exact,
}


@dataclass(frozen=True, slots=True)
class Field:
    """What may stand before a colon: `condition` of the value, which is one of `allowed` if any."""

    condition: Callable[[str, Person], Q]
    allowed: Sequence[str] = ()
    form: str = ""  # of values that are not listed
    normalize: Callable[[str], str] = str.lower  # before the comparison with `allowed`


def condition(query: str, user: Person) -> Q:
    """Return the condition that all terms of `query` make together. Raises QueryError."""
    wanted = Q()
    for term in parse(query):
        one = _of_term(term, user)
        wanted &= ~one if term.is_negated else one
    return wanted


def mentions_archived(query: str) -> bool:
    """Whether the query decides itself about archived operations. Raises QueryError."""
    return any(term.name.lower() == "archived" for term in parse(query))


def _of_term(term: Term, user: Person) -> Q:
    if not term.name:
        text = term.plain
        return Q(name__icontains=text) | Q(id__icontains=text)
    if term.operator != ":":
        return _comparison(term)
    field = FIELDS.get(term.name.lower())
    if field is None:
        names = ", ".join(f"{name}:" for name in FIELDS)
        raise term.error(
            f"got {term.name + ':'!r}; allowed: {names}, a metric or config field with one of "
            f"{SIGNS}, and text in quotation marks"
        )
    found = Q()
    for value in term.values:
        found |= field.condition(_checked(field, value, term), user)
    return found


def _checked(field: Field, value: str, term: Term) -> str:
    if field.allowed:
        value = field.normalize(value)
        if value not in field.allowed:
            raise term.error(f"got {value[:60]!r}; allowed: {', '.join(field.allowed)}")
    elif field.form and not _AGE.fullmatch(value):
        raise term.error(f"got {value[:60]!r}; allowed: {field.form}")
    return value


def _comparison(term: Term) -> Q:
    """Compare a metric, config field or column; false where the operation does not have it."""
    value, given = named(term.name), term.plain.strip()
    if term.name.lower() in FIELDS and is_latest(value):
        raise term.error(
            f"got {term.name + term.operator!r}; allowed: {term.name.lower()}:, and "
            f"{METRIC}{term.name} for a metric of this name"
        )
    number = _number(given)
    if number is not None:
        left, right = value.number, Value(number)
    elif term.operator in ("=", "!=") and value.path:
        left, right = value.text, Value(given)
    else:
        raise term.error(f"got {given[:60]!r}; allowed after {term.operator!r}: a number")
    holds = Q(_LOOKUPS[term.operator](left, right))
    if term.operator == "!=":
        holds = ~holds & Q(lookups.IsNull(left, False))
    known = Case(When(holds, then=Value(True)), default=Value(False), output_field=BooleanField())
    if number is None or term.operator == "!=" or not is_latest(value):
        return Q(known)
    return by_value.compared(value, _LOOKUPS[term.operator], number, known)


def _number(text: str) -> float | None:
    try:
        number = float(text.replace("_", "x"))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def owner_id(name: str, user: Person) -> Any:
    """Return whose id is meant; looked up first, since a join would hide the index by owner."""
    if name == ME:
        return user.pk
    found = User.objects.filter(username=name).values_list("pk", flat=True).first()
    return -1 if found is None else found


def ran_on(worker_id: str) -> Q:
    """Return the condition that it runs or ran on a worker whose id starts so."""
    ran = Attempt.objects.filter(operation_id=OuterRef("pk"), worker_id__istartswith=worker_id)
    return Q(worker_id__istartswith=worker_id) | Q(Exists(ran))


def is_tagged(name: str) -> Q:
    """Return the condition that it has a tag; of many, the latest are found without all others."""
    tags = Tag.objects.filter(name=name)
    if tags[:MANY].count() < MANY:
        return Q(pk__in=tags.values("operation_id"))
    return Q(Exists(tags.filter(operation_id=OuterRef("pk"))))


def is_resumable() -> Q:
    return IS_STOPPED & Q(has_checkpoint())


def _of_state(name: str) -> Q:
    return IS_ACTIVE if name == "active" else Q(state=name.upper())


def _reason(given: str) -> str:
    return OLDER_REASONS.get(given.upper(), given.upper()).lower()


def _ago(age: str) -> datetime:
    return timezone.now() - timedelta(**{_UNITS[age[-1]]: int(age[:-1])})


AGES = "a whole number and m, h, d or w, such as 7d"
QUALITIES: dict[str, Callable[[], Q]] = {
    "resumable": is_resumable,
    "attention": attention.needed,
    "favourite": lambda: Q(is_favourite=True),
}
FIELDS: dict[str, Field] = {  # what they mean: docs/lists.md
    "state": Field(
        lambda value, _: _of_state(value),
        allowed=[*(state.lower() for state in State.values), "active"],
    ),
    "kind": Field(lambda value, _: Q(kind=value), allowed=tuple(KINDS)),
    "tag": Field(lambda value, _: is_tagged(value)),
    "owner": Field(lambda value, user: Q(owner_id=owner_id(value, user))),
    "recipe": Field(lambda value, _: Q(recipe=value)),
    "reason": Field(
        lambda value, _: Q(reason=value.upper()),
        allowed=[value.lower() for value in Reason.values if value],
        normalize=_reason,
    ),
    "worker": Field(lambda value, _: ran_on(value)),
    "study": Field(lambda value, _: Q(study_id=value) | Q(study__name=value)),
    "project": Field(lambda value, _: is_("project", "> ''") & Q(project=value)),
    "archived": Field(
        lambda value, _: Q() if value == "any" else Q(archived_at__isnull=value == "no"),
        allowed=("yes", "no", "any"),
    ),
    "no": Field(lambda value, _: without(value)),
    "older": Field(lambda value, _: Q(created_at__lt=_ago(value)), form=AGES),
    "newer": Field(lambda value, _: Q(created_at__gte=_ago(value)), form=AGES),
    "attention": Field(
        lambda value, _: attention.needed_for(value.upper()),
        allowed=[each.lower() for each in attention.Attention.values],
    ),
    "is": Field(lambda value, _: QUALITIES[value](), allowed=tuple(QUALITIES)),
}
