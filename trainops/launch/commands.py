"""Which command is whose. `up`, `test` and `bench` are ours; the rest speaks with a server."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from trainops import paths
from trainops.launch import environment
from trainops.launch.refusal import CannotStart
from trainops.launch.testing import bench, chaos, test
from trainops.launch.up import up
from trainops.paths import COMMAND

HELP = f"""\
trainops: long machine-learning operations that can be stopped at any moment.

Usage: {COMMAND} COMMAND [OPTIONS]          (COMMAND --help says more)

Here
  up               install what is missing, start everything, print the address
  test             the same set-up, then every check and test of the project
  bench            measure the speed, print tables, write JSON
  chaos            a storm of faults over an installation of its own, and what is true after it
  install          only the set-up

With a running server
  run              submit the operation that a YAML file describes
  ls, show         operations, and one of them
  watch            follow its progress
  logs, events     what its processes wrote; what happened to it
  cancel           save at the next safe point, then stop
  resume           go on from the newest healthy checkpoint
  fork             a new operation that goes on from a checkpoint of another
  rm               delete an operation with all that it saved
  studies          many operations that differ in some values: submit, compare, stop
  checkpoints      list, look into, verify, compare, pin and delete them
  recipes          what can be run, and a file to start from
  upload           a table (CSV, Parquet) or images (NPZ)
  workers          who does the work
  login, token     sign in; make a token for a program
"""


def install(arguments: Sequence[str]) -> int:
    """Make the environment and nothing else: for images, and for editors that want it early."""
    environment.require_clone("install")
    parser = argparse.ArgumentParser(
        prog="python3 -m trainops install", description="Install the packages into .venv."
    )
    parser.add_argument("extras", nargs="*", help="groups of pyproject.toml to add, such as test")
    environment.ensure(paths.ROOT / "var" / "log", extras=parser.parse_args(arguments).extras)
    return 0


OURS = {"up": up, "test": test, "bench": bench, "chaos": chaos, "install": install}


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; what is in the way is one line, and 2."""
    command, rest = (arguments[0], arguments[1:]) if arguments else ("--help", [])
    if command in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    try:
        if command in OURS:
            return OURS[command](rest)
        return _command_line(arguments)
    except CannotStart as problem:
        print(problem, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        return 130


def _command_line(arguments: Sequence[str]) -> int:
    if environment.python().exists() and not environment.is_active():
        environment.enter(arguments)
    if not environment.is_usable():
        raise CannotStart(f"The environment is not there yet. Make it with: {COMMAND} up")
    import_module("trainops.cli").main(list(arguments))
    return 0
