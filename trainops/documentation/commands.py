"""All commands with their arguments and options, from the parsers themselves."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from trainops.documentation.text import page as joined
from trainops.documentation.text import table

SHARED = ("--url", "--token", "--output")  # of every command
HEADING = ("argument or option", "description")


def page() -> str:
    """Return the Markdown of all commands."""
    from typer.main import get_command  # noqa: PLC0415 - only for this page: 10 MB of memory

    group = get_command(import_module("trainops.cli.app").build())
    shared = [each for each in _first(group).params if _names(each)[0] in SHARED]
    return joined(
        "# All commands and options",
        "In a clone, `trainops` is `python3 -m trainops`. Examples and exit codes: "
        "[command line](../command-line.md).",
        "## Options of every command",
        table(HEADING, map(_row, shared)),
        *(part for name, command in _commands(group, "") for part in _section(name, command)),
        *_up(),
    )


def _first(command: Any) -> Any:
    """Return the first command of a group that is none itself."""
    inner = getattr(command, "commands", None)
    return _first(next(iter(inner.values()))) if inner else command


def _commands(command: Any, before: str) -> Iterator[tuple[str, Any]]:
    for name, each in command.commands.items():
        if hasattr(each, "commands"):
            yield from _commands(each, f"{before}{name} ")
        elif not each.hidden:
            yield f"{before}{name}", each


def _section(name: str, command: Any) -> Iterator[str]:
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    own = [each for each in shown if _names(each)[0] not in SHARED]
    arguments = [_names(each)[0] for each in own if not each.opts[0].startswith("-")]
    yield f"## {name}"
    yield f"`{' '.join(['trainops', name, *arguments])}`"
    yield _plain(command.help)
    yield table(HEADING, map(_row, own))


def _names(parameter: Any) -> list[str]:
    if parameter.opts[0].startswith("-"):
        return sorted([*parameter.opts, *parameter.secondary_opts], key=len, reverse=True)
    return [parameter.metavar or parameter.name.upper()]


def _row(parameter: Any) -> tuple[str, str]:
    names, value = _names(parameter), parameter.metavar
    shown = ", ".join(f"`{each}`" for each in names)
    if value and value not in names:
        shown += f" `{value}`"
    return shown, _plain(getattr(parameter, "help", None))


def _up() -> Iterator[str]:
    """Yield the section of `up`, which is parsed before any package is installed."""
    parser = import_module("trainops.launch.options").parser()
    rows = [
        (
            ", ".join(f"`{each}`" for each in action.option_strings)
            + (f" `{action.metavar or action.dest.upper()}`" if action.nargs is None else ""),
            action.help or "",
        )
        for action in parser._actions  # argparse has no public list
    ]
    yield "## up"
    yield "`trainops up`"
    yield _plain(parser.description)
    yield table(HEADING, rows)


def _plain(text: str | None) -> str:
    """Return help as Markdown: the two characters that begin markup are plain there."""
    return (text or "").strip().replace("<", "\\<").replace("*", "\\*")
