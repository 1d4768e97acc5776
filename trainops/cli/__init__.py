"""The command line. It speaks HTTP with a server and knows nothing else of it."""

import io
import os
import sys
from importlib import import_module

from trainops.cli import quick
from trainops.cli.app import COMPLETION, build
from trainops.paths import COMMAND


def main(arguments: list[str] | None = None) -> None:
    """Run one command and exit; `arguments` without the program's name, else the process's own."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="replace"
            )  # a terminal that lacks a letter is no reason to fail
    given = sys.argv[1:] if arguments is None else arguments
    if COMPLETION in os.environ:
        # Typer registers its shells only with options of its own.
        import_module("typer.completion").completion_init()
    app = build(given[0] if given else None)
    if COMPLETION not in os.environ:
        quick.run(app, given)  # exits, if it runs the command
    app(args=given, prog_name=COMMAND, complete_var=COMPLETION)
