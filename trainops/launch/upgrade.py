"""`python3 -m trainops upgrade --check`: whether an upgrade is possible, and what has to stop."""

import argparse
import json
import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from trainops import paths
from trainops.launch import checks, environment, installation
from trainops.launch.refusal import CannotStart

DESCRIPTION = """\
Say what the upgrade of this installation to this version needs: pending migrations, those that
processes of older versions do not work with, what runs now. Changes nothing.
"""
EPILOG = """\
Exit codes: 0 nothing to do, or machine by machine; 1 stop web, beat and workers first; 2 refused,
or nothing could be checked. Migrations are applied by the next `up` of this version, or by
`python -m trainops.launch.prepare`.
"""
CODES = {"nothing to do": 0, "rolling": 0, "stop first": 1, "refused": 2}
TITLES = {
    "nothing to do": "Nothing to do.",
    "rolling": "Machine by machine is possible.",
    "stop first": "Stop everything first.",
    "refused": "Refused.",
}


def upgrade(arguments: Sequence[str]) -> int:
    """Print the verdict with its reasons; return the exit code. Raises CannotStart."""
    chosen = _parser().parse_args(arguments)
    if not chosen.check:
        raise CannotStart(
            "upgrade changes nothing by itself: got no --check. "
            "Migrations are applied by the next `up` of this version."
        )
    environment.require(["upgrade", *arguments])
    directory = chosen.data_dir.expanduser().resolve()
    databases = (directory / "trainops.sqlite3", directory / "postgres")
    if not os.environ.get("TRAINOPS_DATABASE_URL") and not any(map(Path.exists, databases)):
        raise CannotStart(f"There is no installation in {directory} (--data-dir).")
    os.umask(checks.umask())
    os.environ["TRAINOPS_DATA_DIR"] = str(directory)
    installation.open_database()
    found = _found()
    if chosen.output == "json":
        print(json.dumps(found, indent=2))
    else:
        _print(found)
    return CODES[found["verdict"]]


def _found() -> dict[str, Any]:
    # By name, as settings and urls do it: what assembles the apps stands outside their layers.
    upgrade_check: Any = import_module("apps.workers.upgrade_check")
    database: type[Exception] = import_module("django.db").DatabaseError
    try:
        found: dict[str, Any] = upgrade_check.check().to_json()
    except database as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CannotStart(f"The database is not usable: {first}") from error
    return found


def _print(found: dict[str, Any]) -> None:
    print(f"{TITLES[found['verdict']]} {found['message']}")
    if found["remedy"]:
        print(f"-> {found['remedy']}")
    print(f"\nThis version: {found['version']}")
    running = "unknown, the database is empty" if found["running"] is None else found["running"]
    print(f"Running operations: {running}")
    for version, number in found["workers"].items():
        print(f"Workers of version {version}: {number}")
    print(f"Pending migrations: {len(found['pending'])}")
    for name in found["pending"]:
        reasons = "; ".join(found["contract"].get(name, ()))
        print(f"  {name}" + (f"  STOP FIRST: {reasons}" if reasons else ""))
    if found["unknown"]:
        print(f"Migrations of a newer version: {len(found['unknown'])}")
        for name in found["unknown"]:
            print(f"  {name}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"{paths.COMMAND} upgrade",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    default = paths.data_dir()
    parser.add_argument("--check", action="store_true", help="check only; required")
    parser.add_argument(
        "--data-dir", type=Path, default=default, help=f"data directory (default: {default})"
    )
    parser.add_argument(
        "-o", "--output", choices=["text", "json"], default="text", help="form (default: text)"
    )
    return parser
