"""The command line. It speaks HTTP with a server and knows nothing else of it."""

import io
import sys

from trainops.cli.app import build
from trainops.paths import COMMAND


def main(arguments: list[str] | None = None) -> None:
    """Run one command and exit; `arguments` without the program's name, else the process's own."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="replace"
            )  # a terminal that lacks a letter is no reason to fail
    build()(args=arguments, prog_name=COMMAND)
