"""The errors of Pydantic as those of a config: what was given, and what is allowed."""

from collections.abc import Sequence
from difflib import get_close_matches

from pydantic import (
    BaseModel,
)
from pydantic_core import ErrorDetails

MAX_SHOWN = 80  # characters of what was given
CHOICE = "|"  # begins the tag of a choice of a union, which is no part of a path


def explain(cls: type[BaseModel], error: ErrorDetails) -> tuple[str, str]:
    """Return (dotted path, what was given and what is allowed)."""
    names = (str(part) for part in error["loc"])
    path = ".".join(_short(name) for name in names if not name.startswith(CHOICE))
    if error["type"] == "extra_forbidden":
        return path, _unknown(cls, error["loc"])
    if error["type"] == "missing":
        return path, "nothing was given; it is required"
    if error["type"] == "dict_type":
        return path, f"got {shown(error['input'])}; {_pairs(cls, error['loc'])}"
    allowed = error["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    return path, f"got {shown(error['input'])}; {allowed}"


def _unknown(cls: type[BaseModel], loc: tuple[int | str, ...]) -> str:
    owner = _model_at(cls, loc[:-1])
    if owner is None:
        return "there is no such field"
    near = get_close_matches(str(loc[-1])[:MAX_SHOWN], owner.model_fields, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"there is no such field{hint}; allowed: {', '.join(owner.model_fields)}"


def _pairs(cls: type[BaseModel], loc: tuple[int | str, ...]) -> str:
    owner = _model_at(cls, loc[:-1])
    field = owner.model_fields.get(str(loc[-1])) if owner else None
    example = f", such as {field.examples[0]}" if field and field.examples else ""
    return f"must be pairs of a name and a value{example}"


def _model_at(cls: type[BaseModel], loc: Sequence[int | str]) -> type[BaseModel] | None:
    owner = cls
    for name in loc:
        field = owner.model_fields.get(str(name))
        nested = field and field.annotation
        if not (isinstance(nested, type) and issubclass(nested, BaseModel)):
            return None
        owner = nested
    return owner


def shown(value: object) -> str:
    return _short(repr(value))


def _short(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."
