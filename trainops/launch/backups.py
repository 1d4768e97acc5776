"""`python3 -m trainops backup` and `restore`: a whole installation in a directory or a bucket."""

import argparse
import os
import shlex
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from trainops import paths
from trainops.launch import checks, data_directory, environment, installation
from trainops.launch.refusal import CannotStart
from trainops.paths import COMMAND

BACKUP = """\
Save the database, all checkpoints and all uploaded datasets of this installation into a directory
or a bucket, while it runs. What an earlier backup in the same place has is not copied again. Every
file is compared with its digest on the way. With --key, everything is encrypted.
"""
BACKUP_EPILOG = """\
Exit codes: 0 everything was saved; 1 files of some rows are missing or altered, and are named, or
--keep could delete no older backup; 2 there is no backup. Registered directories and prefixes of
buckets are not copied, only their manifests. A backup holds private data and, unless
TRAINOPS_SECRET_KEY is set, the secret key. Credentials of a bucket are read from the environment,
as for TRAINOPS_CHECKPOINT_STORAGE.
"""
RESTORE = """\
Bring a backup back into an empty data directory, or an empty database of PostgreSQL. Afterwards
`up` starts the installation; operations that were running resume from their latest checkpoint.
"""
DIRECTORY = "directory of the backups, or a bucket such as s3://BUCKET/PREFIX"
KEY = "file with 64 hexadecimal digits, with which everything is encrypted"


def backup(arguments: Sequence[str]) -> int:
    """Make, list or verify backups; return the exit code. Raises CannotStart."""
    parser = argparse.ArgumentParser(
        prog=f"{COMMAND} backup", description=BACKUP, epilog=BACKUP_EPILOG
    )
    parser.add_argument("directory", help=DIRECTORY)
    parser.add_argument("--key", type=Path, metavar="FILE", help=KEY)
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
    if chosen.list or chosen.verify:
        import_module("apps.backups.preparing").without_settings()
        with TemporaryDirectory() as workspace, _refusing():
            store = _opened(chosen, Path(workspace))
            return _list(store) if chosen.list else _verify(store)
    installation.require()
    installation.open_database()
    stores = import_module("apps.backups.store")
    with stores.workspace(paths.data_dir()) as workspace, _refusing():
        return _make(_opened(chosen, workspace), chosen.keep)


def restore(arguments: Sequence[str]) -> int:
    """Restore a backup; return the exit code. Raises CannotStart."""
    parser = argparse.ArgumentParser(prog=f"{COMMAND} restore", description=RESTORE)
    parser.add_argument("directory", help=DIRECTORY)
    parser.add_argument("--key", type=Path, metavar="FILE", help=KEY)
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
    data_dir = _absolute(chosen.data_dir)
    data_dir.mkdir(parents=True, exist_ok=True)
    checks.close_to_others(data_dir)
    os.environ["TRAINOPS_DATA_DIR"] = str(data_dir)
    with data_directory.owned(data_dir, ""):
        return _restore(chosen, data_dir)


def _restore(chosen: argparse.Namespace, data_dir: Path) -> int:
    with _refusing(), ExitStack() as stack:
        _require_empty(data_dir)
        name, made_by = _prepared(_location(chosen.directory), chosen, data_dir)
        is_embedded = made_by == "postgresql" and not os.environ.get("TRAINOPS_DATABASE_URL")
        if not is_embedded:
            _require_none(data_dir / "postgres")
        if is_embedded:
            servers = import_module("trainops.launch.servers")
            url = stack.enter_context(servers.postgres_of(data_dir))
            os.environ["TRAINOPS_DATABASE_URL"] = url
        installation.open_database()
        stores = import_module("apps.backups.store")
        store = _opened(chosen, stack.enter_context(stores.workspace(data_dir)))
        restored = import_module("apps.backups.restoring").restore(store, name)
    print(
        f"Restored {name}: {len(restored.checkpoints)} checkpoints, "
        f"{len(restored.datasets)} datasets."
    )
    _print_losses(restored)
    command = f"{COMMAND} up --data-dir {shlex.quote(str(data_dir))}"
    print(f"Start it with: {command}" + (" --postgres" if is_embedded else ""))
    return 0


def _prepared(location: str, chosen: argparse.Namespace, data_dir: Path) -> tuple[str, str]:
    """Return the name and the engine of the backup, read by a process without our settings."""
    prepare = import_module("apps.backups.preparing").prepare
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
        prepared = processes.submit(prepare, location, chosen.key, chosen.backup, data_dir)
        found: tuple[str, str] = prepared.result()
    return found


def _opened(chosen: argparse.Namespace, workspace: Path) -> Any:
    stores = import_module("apps.backups.store")
    return stores.opened(_location(chosen.directory), chosen.key, workspace)


def _location(given: str) -> str:
    return given if "://" in given else str(_absolute(Path(given)))


def _make(store: Any, keep: int | None) -> int:
    made = import_module("apps.backups.making").make(store, keep=keep)
    found = made.snapshot
    print(
        f"{made.name}: {len(found.checkpoints)} checkpoints, {len(found.datasets)} datasets, "
        f"{_megabytes(found.size_bytes)}; {_megabytes(made.copied_bytes)} copied."
    )
    _print_losses(found)
    if made.not_thinned:
        print(f"no older backup was deleted: {made.not_thinned}", file=sys.stderr)
    return 1 if found.losses or made.not_thinned else 0


def _list(store: Any) -> int:
    snapshots, errors = (
        import_module("apps.backups.snapshots"),
        import_module("apps.backups.errors"),
    )
    for name in snapshots.newest_first(store):
        try:
            found = snapshots.read(store, name)
        except errors.NotABackup as problem:
            print(f"{name}  {problem}")
            continue
        losses = f", {len(found.losses)} not saved" if found.losses else ""
        print(
            f"{name}  {len(found.checkpoints)} checkpoints, {len(found.datasets)} datasets, "
            f"{_megabytes(found.size_bytes)}{losses}"
        )
    return 0


def _verify(store: Any) -> int:
    snapshots = import_module("apps.backups.snapshots")
    name = snapshots.find(store)
    problems = list(snapshots.problems(store, name))
    for each in problems:
        print(each, file=sys.stderr)
    print(f"{name}: {'damaged' if problems else 'intact'}")
    return 1 if problems else 0


def _require_empty(data_dir: Path) -> None:
    """Raise CannotStart for a database with tables; a restore that failed may leave one without.

    That of PostgreSQL is asked once its server runs.
    """
    path = data_dir / "trainops.sqlite3"
    if not path.exists():
        return
    try:
        with closing(sqlite3.connect(path)) as database:
            is_empty = not database.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except sqlite3.DatabaseError:
        is_empty = False
    if not is_empty:
        _require_none(path)


def _require_none(path: Path) -> None:
    """Raise CannotStart where the data directory has the database of an installation."""
    if path.exists() and not os.environ.get("TRAINOPS_DATABASE_URL"):
        raise CannotStart(
            f"{path.parent} has an installation ({path.name}). Restore into another --data-dir."
        )


@contextmanager
def _refusing() -> Iterator[None]:
    """Turn what can be expected to go wrong into a message. Raises CannotStart."""
    # By name, as settings and urls do it: what assembles the apps stands outside their layers.
    errors = import_module("apps.backups.errors")
    database: type[Exception] = import_module("django.db").DatabaseError
    try:
        yield
    except (errors.BackupProblem, OSError, database) as problem:
        raise CannotStart(str(problem)) from problem


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
