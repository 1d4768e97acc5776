"""What snapshot.json says: which files make up one backup."""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from apps.backups.errors import NotABackup
from apps.backups.files import BackupFiles, digest_of
from trainops.runtime.checkpoint.durable import write_whole

FORMAT, VERSION = "trainops-backup", 1
INDEX, DATABASE, SECRET_KEY = "snapshot.json", "database", "secret_key"
MANY = 5  # that a message names
NAME = re.compile(r"\d{8}T\d{6}Z(-\d+)?")


@dataclass(frozen=True, slots=True)
class Loss:
    """A file that a row has and that could not be saved."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One backup. Digests are BLAKE3 in hexadecimal."""

    trainops: str  # the version that made it
    made_at: str
    engine: str  # sqlite or postgresql
    database: str  # digest
    storages: dict[str, str]  # id of each storage by name
    checkpoints: dict[str, str]  # digest of the manifest by directory
    datasets: list[str]  # digests
    files: dict[str, int]  # size of every file of the backup by digest
    losses: list[Loss]

    @property
    def size_bytes(self) -> int:
        return sum(self.files.values())


def write(directory: Path, snapshot: Snapshot) -> None:
    content = {"format": FORMAT, "version": VERSION, **asdict(snapshot)}
    write_whole(directory / INDEX, json.dumps(content, indent=1).encode())


def read(directory: Path) -> Snapshot:
    """Return the backup in a directory below `snapshots`. Raises NotABackup."""
    path = directory / INDEX
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
        is_known = (content.pop("format"), content.pop("version")) == (FORMAT, VERSION)
        if is_known:
            losses = [Loss(**each) for each in content.pop("losses")]
            return Snapshot(**content, losses=losses)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise NotABackup(f"{path} cannot be read: {error}") from error
    raise NotABackup(f"{path} was written by a newer trainops; update trainops to restore it.")


def newest_first(root: Path) -> Iterator[Path]:
    """Yield the directories of complete backups."""
    for path in sorted((root / "snapshots").glob("*"), key=_age, reverse=True):
        if NAME.fullmatch(path.name) and (path / INDEX).exists():
            yield path


def find(root: Path, name: str = "") -> Path:
    """Return the directory of a backup, by default of the newest. Raises NotABackup."""
    known = list(newest_first(root))
    if not known:
        raise NotABackup(f"There is no complete backup in {root}.")
    found = [each for each in known if each.name == name] if name else known
    if not found:
        names = ", ".join(each.name for each in known[:MANY])
        raise NotABackup(f"There is no backup {name!r} in {root}; newest: {names}.")
    return found[0]


def problems(root: Path, directory: Path) -> Iterator[str]:
    """Read every file of a backup; yield what is wrong with it. Raises NotABackup."""
    snapshot, path = read(directory), directory / DATABASE
    try:
        with path.open("rb") as file:
            if digest_of(file) != snapshot.database:
                yield f"the database {path} was altered"
    except FileNotFoundError:
        yield f"the database {path} is missing"
    for digest, why in BackupFiles(root / "files").damaged(snapshot.files):
        yield f"the file {digest} {why}"


def save_key(directory: Path, key: str) -> None:
    _write_private(directory / SECRET_KEY, key)


def place_key(directory: Path, data_dir: Path) -> None:
    """Have an installation without a secret key use the one of a backup, if it has one."""
    source, target = directory / SECRET_KEY, data_dir / SECRET_KEY
    if source.exists() and not target.exists():
        _write_private(target, source.read_text())


def _write_private(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


def _age(path: Path) -> tuple[str, int]:
    moment, _, number = path.name.partition("-")
    return moment, int(number) if number.isdigit() else 0
