"""What a restore has to read of a backup before there are settings.

The settings name the database and hold the secret key, and both follow from the backup. Storages
of buckets need settings, too, which a process has only once: so this is called in a process of its
own.
"""

from pathlib import Path

from django.conf import settings

from apps.backups import snapshots, store
from apps.backups.errors import NotABackup


def without_settings() -> None:
    """Have this process need no installation: for the contents of backups alone."""
    if not settings.configured:
        settings.configure()


def prepare(location: str, key: Path | None, name: str, data_dir: Path) -> tuple[str, str]:
    """Place the secret key of a backup; return the name of the backup and its engine.

    Raises BackupProblem.
    """
    without_settings()
    try:
        with store.workspace(data_dir) as workspace:
            backups = store.opened(location, key, workspace)
            found = snapshots.find(backups, name)
            engine = snapshots.read(backups, found).engine
            snapshots.place_key(backups, found, data_dir)
    except OSError as error:  # of libraries, whose errors may not reach another process
        raise NotABackup(f"{location} cannot be read: {error}") from None
    return found, engine
