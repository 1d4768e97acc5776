"""`python3 -m trainops COMMAND`: the entry point of all commands.

Any Python 3 must be able to read this file, so that an old one prints a sentence instead of
a SyntaxError: no match, no walrus, no new type syntax outside quotes.
"""

import os
import shutil
import sys

OLDEST = (3, 11)
NEWER = ("python3.14", "python3.13", "python3.12", "python3.11")


def complaint(version: "tuple[int, ...]", system: str) -> str:
    """Why this interpreter cannot run trainops, in one line; empty where it can."""
    if system == "nt":
        return "trainops runs on Linux and macOS; on Windows, use WSL."
    if version[:2] >= OLDEST:
        return ""
    found = [name for name in NEWER if shutil.which(name)]
    remedy = f"Try: {found[0]} -m trainops up" if found else "Install a newer Python first."
    return f"trainops needs Python 3.11 or newer; this is {version[0]}.{version[1]}. {remedy}"


def run() -> None:
    """Run the command of this process's arguments and exit: also the console script `trainops`."""
    problem = complaint(tuple(sys.version_info[:3]), os.name)
    if problem:
        sys.stderr.write(problem + "\n")
        sys.exit(2)

    from trainops.launch.commands import main  # noqa: PLC0415 - an old Python cannot read it

    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    run()
