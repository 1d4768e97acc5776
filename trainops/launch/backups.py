"""`python3 -m trainops backup` and `restore`: a whole installation in a directory, and back."""

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

from trainops import paths
from trainops.launch import checks, data_directory, environment, installation
from trainops.launch.refusal import CannotStart
from trainops.paths import COMMAND

BACKUP = """\
Save the database, all checkpoints and all uploaded datasets of this installation into a directory,
while it runs. What an earlier backup in the same directory has is not copied again. Every file is
compared with its digest on the way.
"""
BACKUP_EPILOG = """\
Exit codes: 0 everything was saved; 1 files of some rows are missing or altered, and are named; 2
there is no backup. Registered directories and prefixes of buckets are not copied, only their
manifests. The directory holds private data and, unless TRAINOPS_SECRET_KEY is set, the secret key.
"""
RESTORE = """\
Bring a backup back into an empty data directory, or an empty database of PostgreSQL. Afterwards
`up` starts the installation; operations that were running resume from their latest checkpoint.
"""


def backup(arguments: Sequence[str]) -> int:
    """Make, list or verify backups; return the exit code. Raises CannotStart."""
    parser = argparse.ArgumentParser(
        prog=f"{COMMAND} backup", description=BACKUP, epilog=BACKUP_EPILOG
    )
    parser.add_argument("directory", type=Path, help="directory of the backups")
    parser.add_argument(
        "--keep", type=_at_least_one, metavar="N", help="then delete all backups but the latest N"
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--list", action="store_true", help="list the backups; make none")
    action.add_argument(
        "--verify", action="store_true", help="read all files of the latest backup; make none"
    )
    chosen = parser.parse_args(arguments)
    environment.require(["backup", *arguments])
    os.umask(checks.umask())
    root = _absolute(chosen.directory)
    if chosen.list:
        return _list(root)
    if chosen.verify:
        return _verify(root)
    installation.require()
    installation.open_database()
    return _make(root, chosen.keep)


def restore(arguments: Sequence[str]) -> int:
    """Restore a backup; return the exit code. Raises CannotStart."""
    parser = argparse.ArgumentParser(prog=f"{COMMAND} restore", description=RESTORE)
    parser.add_argument("directory", type=Path, help="directory of the backups")
    parser.add_argument(
        "--backup", default="", metavar="NAME", help="which one; default: the latest"
    )
    default = paths.data_dir()
    parser.add_argument(
        "--data-dir", type=Path, default=default, help=f"data directory (default: {default})"
    )
    chosen = parser.parse_args(arguments)
    environment.require(["restore", *arguments])
    os.umask(checks.umask())
    root, data_dir = _absolute(chosen.directory), _absolute(chosen.data_dir)
    data_dir.mkdir(parents=True, exist_ok=True)
    checks.close_to_others(data_dir)
    os.environ["TRAINOPS_DATA_DIR"] = str(data_dir)
    with data_directory.owned(data_dir, ""):
        return _restore(root, chosen.backup, data_dir)


def _restore(root: Path, name: str, data_dir: Path) -> int:
    snapshots = import_module("apps.backups.snapshots")
    try:
        found = snapshots.find(root, name)
        made_by = snapshots.read(found).engine
        _require_empty(data_dir)
        with ExitStack() as stack:
            if made_by == "postgresql" and not os.environ.get("TRAINOPS_DATABASE_URL"):
                servers = import_module("trainops.launch.servers")
                url = stack.enter_context(servers.postgres_of(data_dir))
                os.environ["TRAINOPS_DATABASE_URL"] = url
            snapshots.place_key(found, data_dir)
            installation.open_database()
            restored = import_module("apps.backups.restoring").restore(root, found)
    except _expected() as problem:
        raise CannotStart(str(problem)) from problem
    print(
        f"Restored {found.name}: {len(restored.checkpoints)} checkpoints, "
        f"{len(restored.datasets)} datasets."
    )
    _print_losses(restored)
    print(f"Start it with: {COMMAND} up" + (" --postgres" if made_by == "postgresql" else ""))
    return 0


def _make(root: Path, keep: int | None) -> int:
    try:
        made = import_module("apps.backups.making").make(root, keep=keep)
    except _expected() as problem:
        raise CannotStart(str(problem)) from problem
    found = made.snapshot
    print(
        f"{made.name}: {len(found.checkpoints)} checkpoints, {len(found.datasets)} datasets, "
        f"{_megabytes(found.size_bytes)}; {_megabytes(made.copied_bytes)} copied."
    )
    _print_losses(found)
    return 1 if found.losses else 0


def _list(root: Path) -> int:
    snapshots = import_module("apps.backups.snapshots")
    for path in snapshots.newest_first(root):
        found = snapshots.read(path)
        losses = f", {len(found.losses)} not saved" if found.losses else ""
        print(
            f"{path.name}  {len(found.checkpoints)} checkpoints, {len(found.datasets)} datasets, "
            f"{_megabytes(found.size_bytes)}{losses}"
        )
    return 0


def _verify(root: Path) -> int:
    snapshots = import_module("apps.backups.snapshots")
    try:
        found = snapshots.find(root)
        problems = list(snapshots.problems(root, found))
    except _expected() as problem:
        raise CannotStart(str(problem)) from problem
    for each in problems:
        print(each, file=sys.stderr)
    print(f"{found.name}: {'damaged' if problems else 'intact'}")
    return 1 if problems else 0


def _require_empty(data_dir: Path) -> None:
    for name in ("trainops.sqlite3", "postgres"):
        if (data_dir / name).exists() and not os.environ.get("TRAINOPS_DATABASE_URL"):
            raise CannotStart(
                f"{data_dir} has an installation ({name}). Restore into another --data-dir."
            )


def _expected() -> tuple[type[Exception], ...]:
    # By name, as settings and urls do it: what assembles the apps stands outside their layers.
    errors = import_module("apps.backups.errors")
    return (errors.BackupProblem, OSError, import_module("django.db").DatabaseError)


def _print_losses(snapshot: Any) -> None:
    for each in snapshot.losses:
        print(f"not saved: {each.what}: {each.why}", file=sys.stderr)


def _absolute(path: Path) -> Path:
    return path.expanduser().resolve()


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not a number of backups (1 or more)")
    return number


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f} MB"
