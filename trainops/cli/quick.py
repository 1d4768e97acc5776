"""Frequent commands without Typer's conversions, which import pydantic: 0.14 s of CPU time.

The options are those that the command declares for Typer. Whatever is not plainly right here (a
wrong value, `--help`, an abbreviation) is left to Typer, with its messages.
"""

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin

import typer
from typer.models import ArgumentInfo, OptionInfo

MAX_DIGITS = 18  # more is out of the range of any option
COMMANDS = frozenset({"ls", "show", "events", "stats"})


class NotPlain(Exception):
    """Typer is to parse this command line."""


def run(app: typer.Typer, arguments: Sequence[str]) -> bool:
    """Run the command and exit, if it is one of these and its line is plain; else return False."""
    if not arguments or arguments[0] not in COMMANDS:
        return False
    (function,) = (each.callback for each in app.registered_commands if each.name == arguments[0])
    if function is None:
        return False
    try:
        given = parsed(inspect.signature(function).parameters, arguments[1:])
    except NotPlain:
        return False
    sys.exit(_exit_code(lambda: function(**given)))


def _exit_code(command: Callable[[], object]) -> int:
    try:
        command()
        sys.stdout.flush()
    except typer.Exit as left:
        return left.exit_code
    except BrokenPipeError:  # `ls | head`: nothing more can be written, also not at the exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def parsed(
    parameters: Mapping[str, inspect.Parameter], arguments: Sequence[str]
) -> dict[str, object]:
    """Return the values of the parameters of a command. Raises NotPlain."""
    declared = {name: _Declared(each) for name, each in parameters.items()}
    options = {flag: name for name, each in declared.items() for flag in each.flags}
    texts: dict[str, list[str]] = {}
    rest = iter(arguments)
    words = []
    for word in rest:
        flag, has_value, value = word.partition("=")
        if not word.startswith("-"):
            words.append(word)
        elif flag not in options or (has_value and not flag.startswith("--")):
            raise NotPlain
        else:
            found = declared[options[flag]]
            if found.is_flag:
                value = "" if not has_value else _refused()
            elif not has_value:
                value = _value(rest)
            texts.setdefault(options[flag], []).append(value)
    texts |= _positional(declared, words)
    return {name: each.value(texts.get(name, [])) for name, each in declared.items()}


def _positional(declared: "Mapping[str, _Declared]", words: list[str]) -> dict[str, list[str]]:
    names = [name for name, each in declared.items() if not each.is_option]
    if len(names) == 1 and (declared[names[0]].is_list or len(words) == 1):
        return {names[0]: words}
    return {} if not names and not words else _refused()


def _value(rest: Iterator[str]) -> str:
    value = next(rest, "-")
    return value if not value.startswith("-") else _refused()


def _refused() -> Any:
    raise NotPlain


def _flags(name: str, info: Any) -> tuple[str, ...]:
    """Return the flags of an option; within `Annotated`, Typer takes the first for a default."""
    written = [each for each in (info.default, *(info.param_decls or ())) if isinstance(each, str)]
    return tuple(written) or (f"--{name.replace('_', '-')}",)


class _Declared:
    """A parameter as it is declared for Typer: `Annotated[TYPE, typer.Option(...)]`."""

    def __init__(self, parameter: inspect.Parameter) -> None:
        if get_origin(parameter.annotation) is not Annotated:
            raise NotPlain
        annotation, self.info = get_args(parameter.annotation)[:2]
        self.default = parameter.default
        self.is_option = isinstance(self.info, OptionInfo)
        if not isinstance(self.info, OptionInfo | ArgumentInfo) or self.info.callback:
            raise NotPlain
        if isinstance(annotation, UnionType):
            (annotation,) = (each for each in get_args(annotation) if each is not NoneType)
        self.is_list = get_origin(annotation) is list
        self.type: Any = get_args(annotation)[0] if self.is_list else annotation
        self.is_flag = self.type is bool
        self.flags = _flags(parameter.name, self.info) if self.is_option else ()

    def value(self, texts: list[str]) -> object:
        """Return the value of the texts that were given. Raises NotPlain."""
        if self.is_list and texts:
            return [self._converted(each) for each in texts]
        if len(texts) > 1 or (not texts and self.default is inspect.Parameter.empty):
            raise NotPlain
        return self._converted(texts[0]) if texts else self.default

    def _converted(self, text: str) -> object:
        if self.type is str:
            return text
        if self.type is bool:
            return True
        if self.type is int and text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS:
            number = int(text)
            least, most = self.info.min, self.info.max
            if (least is None or number >= least) and (most is None or number <= most):
                return number
        if isinstance(self.type, type) and issubclass(self.type, Enum):
            for member in self.type:
                if member.value == text:
                    return member
        raise NotPlain
