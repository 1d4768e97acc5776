"""Messages between processes: frozen dataclasses, each sent as one line.

A line is the name of the class, a space, and the fields as JSON.
"""

import json
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar, cast, get_args

from pydantic import TypeAdapter, ValidationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _typeshed import DataclassInstance

M = TypeVar("M")  # the messages that one end receives


class MessageReader(Generic[M]):
    """Reads lines as messages.

    received: the message class that is accepted, or a union of them.
    """

    def __init__(self, received: object) -> None:
        classes: tuple[type[M], ...] = get_args(received) or (received,)
        self._classes: Mapping[str, type] = {each.__name__: each for each in classes}

    def read(self, line: bytes) -> M:
        """Return the message of a line. Raises ValueError: it is none of those accepted."""
        name, _, content = line.partition(b" ")
        found = self._classes.get(name.decode("ascii", "replace"))
        if found is None:
            allowed = ", ".join(self._classes)
            raise ValueError(f"got a message {name[:40]!r}; allowed: {allowed}")
        try:
            return cast(M, _adapter(found).validate_python(_storable(json.loads(content))))
        except json.JSONDecodeError as error:
            raise ValueError(f"{found.__name__}: got {content[:40]!r}; allowed: JSON") from error
        except ValidationError as error:
            raise ValueError(f"{found.__name__}: {_problem(error)}") from error


def _problem(error: ValidationError) -> str:
    """Return the first problem in one line. It has no value: a message may hold a secret."""
    first = error.errors(include_url=False)[0]
    path = ".".join(map(str, first["loc"]))
    return f"{path}: got a {type(first['input']).__name__}; {first['msg']}"


def encoded(message: "DataclassInstance") -> bytes:
    """Return a message as a line."""
    content = json.dumps(_fields(message), separators=(",", ":"), default=_plain)
    return f"{type(message).__name__} {content}\n".encode()


def prepare(received: object) -> None:
    """Build the validators of these messages, which takes time, before a process is forked."""
    for each in get_args(received):
        _adapter(each)


@cache
def _adapter(message_class: type) -> TypeAdapter[object]:
    return TypeAdapter(message_class)


def _fields(value: "DataclassInstance") -> dict[str, object]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return _fields(value)
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"a message cannot hold a {type(value).__name__}")


def _storable(value: object) -> object:
    """Return the value with every text such that any database can store it.

    Lone surrogates (of odd file names) and NUL are replaced.
    """
    if isinstance(value, str):
        whole = value.encode("utf-8", "replace").decode()
        return whole.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if isinstance(value, list):
        return [_storable(each) for each in value]
    if isinstance(value, dict):
        return {_storable(key): _storable(each) for key, each in value.items()}
    return value
