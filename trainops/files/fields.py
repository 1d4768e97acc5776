"""Reading values field by field, and saying of each wrong one where it is and what is allowed."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeGuard, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainops.files.errors import InvalidFields

REQUIRED: Any = object()  # the default of what must be there
MAX_INTEGER = 2**63
MAX_SHOWN, MAX_ITEMS = 60, 4


Default = TypeVar("Default")
Value = TypeVar("Value")


class Fields:
    """The entries of one dict of a file.

    A wrong entry is noted under its place, and a harmless stand-in returned, so that all that is
    wrong is reported at once: by `finish`, before anything is done with the values.
    """

    def __init__(
        self, values: object, place: str = "", problems: dict[str, str] | None = None
    ) -> None:
        self.place = place
        self.problems: dict[str, str] = {} if problems is None else problems
        self._is_dict = isinstance(values, Mapping)
        self._values: Mapping[object, object] = values if isinstance(values, Mapping) else {}
        if not self._is_dict:
            self.problems[place or "the file"] = f"is {shown(values)}; must be a dict"

    def finish(self) -> None:
        """Raise InvalidFields, if anything was wrong."""
        if self.problems:
            raise InvalidFields(self.problems)

    def wrong(self, name: object, problem: str) -> None:
        """Note what is wrong with an entry."""
        self.problems.setdefault(self.at(name), problem)

    def at(self, name: object) -> str:
        """Return the place of an entry."""
        return joined(self.place, name)

    def has(self, name: str) -> bool:
        return self._values.get(name) is not None

    def names(self) -> list[Any]:
        return list(self._values)

    def items(self) -> Mapping[Any, object]:
        """Return all entries as they are."""
        return self._values

    def plain(self, name: str, default: object = REQUIRED) -> Any:
        """Return whatever is there."""
        return self._take(name, "given", lambda value: True, default, None)

    def integer(
        self, name: str, at_least: int | None = 0, default: Default = REQUIRED
    ) -> int | Default:
        bound = "" if at_least is None else f" of at least {at_least}"
        return self._take(
            name,
            f"an integer{bound}",
            lambda value: is_integer(value) and (at_least is None or value >= at_least),
            default,
            0,
        )

    def number(
        self, name: str, at_least: float | None = None, default: Default = REQUIRED
    ) -> float | Default:
        bound = "" if at_least is None else f" of at least {at_least:g}"
        return self._take(
            name,
            f"a finite number{bound}",
            lambda value: (
                is_number(value)
                and math.isfinite(value)
                and (at_least is None or value >= at_least)
            ),
            default,
            0,
        )

    def flag(self, name: str, default: Default = REQUIRED) -> bool | Default:
        return self._take(name, "true or false", lambda value: type(value) is bool, default, False)

    def text(self, name: str, default: Default = REQUIRED) -> str | Default:
        return self._take(name, "a string", lambda value: type(value) is str, default, "")

    def choice(self, name: str, allowed: Collection[str]) -> str:
        return self._take(
            name,
            f"one of {', '.join(allowed)}",
            lambda value: type(value) is str and value in allowed,
            REQUIRED,
            next(iter(allowed)),
        )

    def tensor(self, name: str, dtype: str = "", dims: int | None = None) -> Tensor:
        """Return a tensor of this dtype ("float32") and number of dimensions, where given."""
        kind = " ".join(["a tensor", *([dtype] if dtype else [])])
        return self._take(
            name,
            kind if dims is None else f"{kind} with {dims} dimensions",
            lambda value: (
                isinstance(value, Tensor)
                and dtype in ("", dtype_name(value))
                and dims in (None, value.dim())
            ),
            REQUIRED,
            torch.empty(0),
        )

    def array(self, name: str, dtype: str, dims: int) -> NDArray[Any]:
        """Return a NumPy array of this dtype and number of dimensions."""
        found: NDArray[Any] = self._take(
            name,
            f"an array {dtype} with {dims} dimensions",
            lambda value: (
                isinstance(value, np.ndarray) and value.dtype == dtype and value.ndim == dims
            ),
            REQUIRED,
            np.empty(0),
        )
        return found

    def sequence(self, name: str, default: Default = REQUIRED) -> Sequence[object] | Default:
        """Return a list of anything."""
        return self._take(name, "a list", is_list, default, ())

    def texts(self, name: str, default: Default = REQUIRED) -> tuple[str, ...] | Default:
        """Return a list of strings as a tuple."""
        found: tuple[str, ...] | Default = self._sequence(
            name, "strings", lambda each: type(each) is str, default
        )
        return found

    def integers(self, name: str, default: Default = REQUIRED) -> tuple[int, ...] | Default:
        """Return a list of integers as a tuple."""
        found: tuple[int, ...] | Default = self._sequence(name, "integers", is_integer, default)
        return found

    def arrays(self, name: str, default: Default = REQUIRED) -> tuple[NDArray[Any], ...] | Default:
        """Return a list of NumPy arrays as a tuple."""
        found: tuple[NDArray[Any], ...] | Default = self._sequence(
            name, "arrays", lambda each: isinstance(each, np.ndarray), default
        )
        return found

    def tensors(self, name: str, default: Default = REQUIRED) -> dict[str, Tensor] | Default:
        """Return a dict of tensors by name."""
        found: dict[str, Tensor] | Default = self._dict(
            name,
            "a dict of tensors by name",
            lambda key, each: type(key) is str and isinstance(each, Tensor),
            default,
        )
        return found

    def numbers(self, name: str, default: Default = REQUIRED) -> dict[str, float] | Default:
        """Return a dict of numbers by name. They may be NaN: a loss may have been."""
        found: dict[str, float] | Default = self._dict(
            name,
            "a dict of numbers by name",
            lambda key, each: type(key) is str and is_number(each),
            default,
        )
        return found

    def mapping(self, name: str, default: object = REQUIRED) -> Any:
        """Return a dict of anything."""
        return self._dict(name, "a dict", lambda key, each: True, default)

    def within(self, name: object) -> "Fields":
        """Return the fields of a dict that must be there."""
        return Fields(
            self._take(name, "a dict", is_dict, REQUIRED, {}), self.at(name), self.problems
        )

    def within_or_empty(self, name: str) -> "Fields":
        """Return the fields of a dict that may be missing."""
        return self.within(name) if self.has(name) else Fields({}, self.at(name), self.problems)

    def each(self, name: str) -> list["Fields"]:
        """Return the fields of each dict in a list that must be there."""
        found: list[object] = self._take(name, "a list of dicts", is_list, REQUIRED, [])
        return [
            Fields(each, f"{self.at(name)}[{number}]", self.problems)
            for number, each in enumerate(found)
        ]

    def _sequence(
        self, name: str, kind: str, accept: Callable[[object], bool], default: object
    ) -> Any:
        found: Any = self._take(name, f"a list of {kind}", is_list, default, ())
        if found is None:
            return None
        for number, each in enumerate(found):
            if not accept(each):
                self.wrong(f"{name}[{number}]", f"is {shown(each)}; must be among {kind}")
                return ()
        return tuple(plain_number(each) for each in found)

    def _dict(
        self, name: str, kind: str, accept: Callable[[object, object], bool], default: object
    ) -> Any:
        found: Any = self._take(name, kind, is_dict, default, {})
        if found is None:
            return None
        for key, each in found.items():
            if not accept(key, each):
                self.wrong(joined(name, key), f"is {shown(each)}; {name} must be {kind}")
                return {}
        return {key: plain_number(each) for key, each in found.items()}

    def _take(
        self,
        name: object,
        kind: str,
        accept: Callable[[object], bool],
        default: Default,
        stand_in: Value,
    ) -> Value | Default:
        """Return the entry, `default` where it is absent, or the stand-in where it is wrong."""
        if name not in self._values or (self._values[name] is None and default is None):
            if default is not REQUIRED:
                return default
            if self._is_dict:  # else everything would be missing
                self.wrong(name, f"is missing; must be {kind}")
            return stand_in
        value: Any = plain_number(self._values[name])
        if accept(value):
            accepted: Value = value
            return accepted
        self.wrong(name, f"is {shown(value)}; must be {kind}")
        return stand_in


def joined(place: str, name: object) -> str:
    """Return the place of an entry: "a.b", "a[0]" for a number."""
    if type(name) is int:
        return f"{place}[{name}]"
    return f"{place}.{name}" if place else str(name)


def shown(value: object) -> str:
    """Return a short name for what was found."""
    if isinstance(value, Tensor):
        return f"a tensor {dtype_name(value)} {tuple(value.shape)}"
    if isinstance(value, np.ndarray):
        return f"an array {value.dtype} {value.shape}"
    if isinstance(value, list | tuple):
        items = [shown(each) for each in value[:MAX_ITEMS]]
        return f"[{', '.join([*items, '...'] if len(value) > MAX_ITEMS else items)}]"
    text = repr(value) if isinstance(value, str | int | float | None) else type(value).__name__
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."


def dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def plain_number(value: object) -> object:
    """Return a NumPy number as Python's, and everything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def is_integer(value: object) -> TypeGuard[int]:
    return type(plain := plain_number(value)) is int and abs(plain) < MAX_INTEGER


def is_number(value: object) -> TypeGuard[float]:
    return type(plain_number(value)) is float or is_integer(value)


def is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list | tuple)


def is_dict(value: object) -> TypeGuard[dict[object, object]]:
    return isinstance(value, dict)
