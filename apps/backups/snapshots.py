"""What snapshot.json says: which files make up one backup."""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from apps.backups import files, places
from apps.backups.contents import digest_of, whole
from apps.backups.errors import ForeignPlace, NotABackup
from apps.backups.files import BackupFiles
from apps.backups.store import BackupStore
from trainops.encrypted_files import Altered

FORMAT, VERSION = "trainops-backup", 1
INDEX, DATABASE, SECRET_KEY = "snapshot.json", "database", "secret_key"
PREFIX = "snapshots/"
MAX_INDEX_BYTES = 2**30  # more than ten million files
MAX_KEY_BYTES = 2**16
MANY = 5  # that a message names
NAME = re.compile(r"\d{8}T\d{6}Z(-\d+)?")
OWN = re.compile(rf"{PREFIX}{NAME.pattern}/({re.escape(INDEX)}|{DATABASE}|{SECRET_KEY})")


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


def name_of(backup: str, file: str = INDEX) -> str:
    """Return the name of one of the files of a backup."""
    return f"{PREFIX}{backup}/{file}"


def write(store: BackupStore, backup: str, snapshot: Snapshot) -> None:
    content = {"format": FORMAT, "version": VERSION, **asdict(snapshot)}
    store.write(name_of(backup), BytesIO(json.dumps(content, indent=1).encode()))


def read(store: BackupStore, backup: str) -> Snapshot:
    """Return what a backup has. Raises NotABackup."""
    path = f"{store.location}/{name_of(backup)}"
    try:
        with store.opened(name_of(backup)) as file:
            content: dict[str, Any] = json.loads(whole(file, MAX_INDEX_BYTES))
        is_known = (content.pop("format"), content.pop("version")) == (FORMAT, VERSION)
        if is_known:
            losses = [Loss(**each) for each in content.pop("losses")]
            return Snapshot(**content, losses=losses)
    except Altered:
        raise NotABackup(f"{path} cannot be read: it was altered.") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise NotABackup(f"{path} cannot be read: {error}") from error
    raise NotABackup(f"{path} was written by a newer trainops; update trainops to restore it.")


def newest_first(store: BackupStore) -> list[str]:
    """Return the names of complete backups."""
    found = (name.removeprefix(PREFIX).split("/") for name in store.place.sizes(PREFIX))
    complete = {each[0] for each in found if each[1:] == [INDEX] and NAME.fullmatch(each[0])}
    return sorted(complete, key=age, reverse=True)


def require_own(store: BackupStore) -> None:
    """Raise ForeignPlace for files of other programs where there is no backup yet."""
    try:
        if newest_first(store) or store.is_marked():
            return
    except FileNotFoundError:
        return  # it is made
    forms = (OWN, files.OWN, places.OWN)
    name = store.place.foreign(lambda name: any(form.fullmatch(name) for form in forms))
    if name is not None:
        raise ForeignPlace(
            f"{store.location} has no backup, but other files, such as {name}. Use an empty "
            "directory or prefix, for example a new one in it."
        )


def find(store: BackupStore, name: str = "") -> str:
    """Return the name of a backup, by default of the newest. Raises NotABackup."""
    known = newest_first(store)
    if not known:
        raise NotABackup(f"There is no complete backup in {store.location}.")
    if name and name not in known:
        names = ", ".join(known[:MANY])
        raise NotABackup(f"There is no backup {name!r} in {store.location}; newest: {names}.")
    return name or known[0]


def remove(store: BackupStore, backup: str) -> None:
    """Remove a backup, but not the files that it shares with others."""
    store.remove(name_of(backup))  # without it the rest does not count
    for name in store.place.sizes(f"{PREFIX}{backup}/"):
        if OWN.fullmatch(name):
            store.remove(name)


def remove_incomplete(store: BackupStore) -> None:
    """Remove what interrupted backups left; only for the process that holds the lock."""
    complete = set(newest_first(store))
    for name in store.place.sizes(PREFIX):
        if OWN.fullmatch(name) and name.split("/")[1] not in complete:
            store.remove(name)


def problems(store: BackupStore, backup: str) -> Iterator[str]:
    """Read every file of a backup; yield what is wrong with it. Raises NotABackup."""
    return _problems(store, backup, BackupFiles(store).damaged)


def visible_problems(store: BackupStore, backup: str) -> Iterator[str]:
    """Yield what is wrong with the database, and with files as far as their sizes show it.

    Raises NotABackup.
    """
    return _problems(store, backup, BackupFiles(store).of_other_size)


def _problems(
    store: BackupStore,
    backup: str,
    look: Callable[[Mapping[str, int]], Iterator[tuple[str, str]]],
) -> Iterator[str]:
    snapshot, name = read(store, backup), name_of(backup, DATABASE)
    try:
        with store.opened(name) as file:
            is_intact = digest_of(file) == snapshot.database
    except FileNotFoundError:
        yield f"the database {name} is missing"
    except Altered:
        yield f"the database {name} was altered"
    else:
        if not is_intact:
            yield f"the database {name} was altered"
    for digest, why in look(snapshot.files):
        yield f"the file {digest} {why}"


def save_keys(store: BackupStore, backup: str, keys: Sequence[str]) -> None:
    store.write(name_of(backup, SECRET_KEY), BytesIO("\n".join(keys).encode()))


def place_key(store: BackupStore, backup: str, data_dir: Path) -> None:
    """Have an installation without a secret key use those of a backup, if it has any.

    Raises NotABackup where that was altered.
    """
    target = data_dir / SECRET_KEY
    try:
        with store.opened(name_of(backup, SECRET_KEY)) as file:
            key = whole(file, MAX_KEY_BYTES)
    except FileNotFoundError:
        return
    except Altered:
        raise NotABackup(f"The secret key of the backup {backup} was altered.") from None
    except ValueError as error:
        raise NotABackup(f"The secret key of the backup {backup} is none: {error}.") from None
    if not target.exists():
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as private:
            private.write(key)


def age(name: str) -> tuple[str, int]:
    """Return by what backups are ordered."""
    moment, _, number = name.partition("-")
    return moment, int(number) if number.isdigit() else 0
