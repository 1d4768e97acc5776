"""Types of arguments and options in words: help says "whole number" instead of "<int>"."""

import re
from functools import partial
from typing import Any

from typer.core import TyperCommand, TyperGroup

WORDS = {"str": "text", "int": "whole number", "float": "number", "bool": ""}
_SHOWN = re.compile(r"<(?P<list>list\[)?(?P<type>.*?)\]?(?: range)?>")


class _InWords:
    """The classes of parameters and of their context are private to typer."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        for parameter in self.get_params(ctx):  # type: ignore[attr-defined]
            parameter.display_type = partial(in_words, parameter)
        super().format_help(ctx, formatter)  # type: ignore[misc]


class WordedCommand(_InWords, TyperCommand):
    """A command with types in words."""


class WordedGroup(_InWords, TyperGroup):
    """A group with types in words."""


def in_words(parameter: Any, ctx: Any) -> str:
    """Return the type of a parameter, e.g. "whole number"; "" for a flag."""
    shown: str = type(parameter).display_type(parameter, ctx)
    if (found := _SHOWN.fullmatch(shown)) is None:
        return shown
    name = WORDS.get(found["type"], found["type"])
    several = "several" if parameter.nargs == -1 else "repeatable"
    return f"{name}, {several}" if found["list"] else name
