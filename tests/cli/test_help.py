"""Help: each command and each group has an example, and the real parser accepts it."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from trainops.cli.app import build

EXAMPLE = re.compile(r"^Example: trainops (.+)$", re.MULTILINE)
APP = build()
ROOT_COMMAND: Any = get_command(APP)


def commands(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    yield name, command
    for inner, each in getattr(command, "commands", {}).items():
        yield from commands(each, f"{name} {inner}".strip())


COMMANDS = dict(commands(ROOT_COMMAND))


def parsed(arguments: list[str]) -> list[Any]:
    """Return the commands that the words name, the outermost first; nothing is executed."""
    command, name, found = ROOT_COMMAND, "trainops", [ROOT_COMMAND]
    while hasattr(command, "commands"):
        context = command.make_context(name, arguments)
        rest = [*context._protected_args, *context.args]
        name, command, arguments = command.resolve_command(context, rest)
        found.append(command)
    command.make_context(name, arguments)
    return found


def pieces(line: str) -> Iterator[list[str]]:
    """Yield the words of each command of a shell's line, without redirections."""
    words: list[str] = []
    tokens = iter(shlex.split(line))
    for token in tokens:
        if token in (">", ">>"):
            next(tokens)
        elif token == "&&":
            yield words
            words = []
        else:
            words.append(token)
    yield words


@pytest.mark.parametrize("name", COMMANDS, ids=lambda name: name or "trainops")
def test_each_help_has_an_example_that_parses(name):
    examples = EXAMPLE.findall(COMMANDS[name].help)
    assert len(examples) == 1
    first, *more = pieces(f"trainops {examples[0]}")
    assert COMMANDS[name] in parsed(first[1:])
    for each in more:
        assert each[0] == "trainops"
        parsed(each[1:])


def shown(*arguments: str) -> str:
    ran = CliRunner().invoke(APP, [*arguments, "--help"], env={"COLUMNS": "160"})
    assert ran.exit_code == 0
    return ran.stdout


@pytest.mark.parametrize("name", COMMANDS, ids=lambda name: name or "trainops")
def test_help_shows_types_in_words(name):
    assert not re.search(r"<(list|str|int|float|bool|path)\b", shown(*name.split()))


def test_the_type_of_a_list_is_that_of_its_items():
    help_text = shown("notifications", "add")
    assert "failed|cancelled|completed|attention, repeatable" in help_text
    assert "whole number [0<=x<=23]" in help_text
    assert "text, several" in shown("ls")
