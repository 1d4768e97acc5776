"""What the ledger entries of a kind hold: ordered fields with their types and limits.

The digest of an entry is taken over the texts of its values, in this order. A kind whose entries
are stored must therefore keep its fields and their order.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from trainops.runtime.ledger import Entry, Value

MAX_INTEGER = 2**63 - 1  # what the columns of every database hold
MAX_IDENTITY = 64  # characters


@dataclass(frozen=True, slots=True)
class LedgerField:
    """One value of an entry. `allowed` describes in an error what `is_allowed` accepts."""

    name: str
    is_allowed: Callable[[Any], bool]
    allowed: str
    is_float: bool = False

    def text(self, value: Any) -> str:
        """Return the same text for what is written and for what any database gives back."""
        return repr(float(value) + 0.0) if self.is_float else str(value)  # -0.0 becomes 0.0


def integer(name: str, maximum: int = MAX_INTEGER, *, is_nullable: bool = False) -> LedgerField:
    """Return a field of integers from 0."""
    prefix = "null, or " if is_nullable else ""
    return LedgerField(
        name,
        lambda value: (is_nullable and value is None) or _is_integer(value, maximum),
        f"{prefix}an integer from 0 to {maximum}",
    )


def number(name: str, maximum: float | None = None) -> LedgerField:
    """Return a field of finite floating-point numbers from 0; integers are accepted as such."""
    allowed = "a finite number from 0" if maximum is None else f"a number from 0 to {maximum}"
    greatest = sys.float_info.max if maximum is None else maximum
    return LedgerField(name, lambda value: _is_number(value, greatest), allowed, is_float=True)


def choice(name: str, allowed: tuple[str, ...]) -> LedgerField:
    """Return a field of one of these texts."""
    return LedgerField(
        name,
        lambda value: type(value) is str and value in allowed,
        f"one of {', '.join(allowed)}",
    )


def text(name: str, maximum: int) -> LedgerField:
    """Return a field of texts that every database can store."""
    return LedgerField(
        name, lambda value: _is_text(value, maximum), f"a string of at most {maximum} characters"
    )


@dataclass(frozen=True, slots=True)
class OlderShape:
    """How workers over HTTP of older versions write an entry: one flat JSON object.

    `read` raises TypeError or KeyError for an object that is not an entry.
    """

    read: Callable[[Mapping[str, object]], Entry]
    write: Callable[[Entry], Mapping[str, object]]


@dataclass(frozen=True, kw_only=True)
class LedgerFields:
    """The fields of a kind's entries, in the order of the digest.

    `group` and `index` name the two fields by which the entries of one subtask are found.
    """

    fields: tuple[LedgerField, ...]
    max_identity: int = MAX_IDENTITY
    group: str = ""
    index: str = ""
    older: OlderShape | None = None

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.fields)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.names)

    @cached_property
    def _every(self) -> tuple[LedgerField, ...]:
        return (text("identity", self.max_identity), integer("step"), *self.fields)

    def problems(self, entry: Entry) -> Iterator[str]:
        """Yield what no database gives back exactly as the digest is taken over it.

        Such an entry could not be corrected after it is written.
        """
        yield from self._wrong_names(entry)
        values = {**entry.values, "identity": entry.identity, "step": entry.step}
        for field in self._every:
            value = values.get(field.name)
            if field.name in values and not field.is_allowed(value):
                subject = f"{field.name} of {entry.identity!r:.40}"
                yield f"{subject}: got {value!r:.40}; allowed: {field.allowed}"

    def stored(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """Return allowed values as they are stored and read: in order, floats as floats."""
        return {
            each.name: float(cast(float, values[each.name])) if each.is_float else values[each.name]
            for each in self.fields
        }

    def texts(self, identity: str, step: int, values: Mapping[str, Value]) -> list[str]:
        """Return what the digest is taken over. Raises ValueError for values that are not allowed.

        A stored value of another type could have the same text.
        """
        if values.keys() != self._names:
            raise ValueError(
                f"got the values {', '.join(values)}; allowed: {', '.join(self.names)}"
            )
        texts = [identity, str(step)]
        for field in self.fields:
            value = values[field.name]
            if not field.is_allowed(value):
                raise ValueError(f"{field.name}: got {value!r:.40}; allowed: {field.allowed}")
            texts.append(field.text(value))
        return texts

    def subtask(self, values: Mapping[str, Value]) -> tuple[int | None, int | None]:
        """Return the group and the index of the subtask that an entry belongs to, or None."""
        group, index = values.get(self.group), values.get(self.index)
        if isinstance(group, int) and isinstance(index, int):
            return group, index
        return None, None

    def _wrong_names(self, entry: Entry) -> Iterator[str]:
        missing = [name for name in self.names if name not in entry.values]
        unknown = [str(name) for name in entry.values if name not in self.names]
        if missing or unknown:
            names = ", ".join(missing or unknown)
            problem = f"{'missing' if missing else 'unknown'}: {names:.100}"
            yield f"values of {entry.identity!r:.40}: {problem}; allowed: {', '.join(self.names)}"


def _is_integer(value: Any, maximum: int) -> bool:
    return type(value) is int and 0 <= value <= maximum  # a bool is none


def _is_number(value: Any, maximum: float) -> bool:
    """No comparison holds for NaN."""
    return isinstance(value, int | float) and type(value) is not bool and 0 <= value <= maximum


def _is_text(value: Any, maximum: int) -> bool:
    if type(value) is not str or len(value) > maximum or "\0" in value:
        return False
    return not any("\ud800" <= each <= "\udfff" for each in value)  # lone surrogates
