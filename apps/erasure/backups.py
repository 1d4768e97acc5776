"""The backups that still have what was erased, and when they are deleted."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from apps.backups import snapshots
from apps.backups.errors import BackupProblem
from apps.backups.store import BackupStore
from apps.installation.models import BackupPlace

SECOND = timedelta(seconds=1)
Opened = Callable[[str], BackupStore]  # location -> store; raises BackupProblem, OSError


@dataclass(frozen=True, slots=True)
class ListedBackup:
    location: str
    name: str  # empty: the place could not be read
    made_at: str
    expires: str  # when it is deleted, for people


def known_locations() -> list[str]:
    """Return the places that backups were written to."""
    return list(BackupPlace.objects.order_by("pk").values_list("pk", flat=True))


def holding(
    joined_at: datetime, locations: Sequence[str], opened: Opened
) -> Iterator[ListedBackup]:
    """Yield the backups made since an account exists: each has a copy of the database."""
    for location in locations:
        place = BackupPlace.objects.filter(pk=location).first()
        written = f", though a backup was written on {place.last_made_at:%Y-%m-%d}" if place else ""
        try:
            store = opened(location)
            names = snapshots.newest_first(store)
            found = [(name, snapshots.read(store, name).made_at) for name in names]
        except (BackupProblem, OSError) as problem:
            why = f"unknown, it could not be read{written}: {problem}"
            yield ListedBackup(location, "", "", why)
            continue
        if not found and place:  # an unmounted directory looks like an empty one
            yield ListedBackup(location, "", "", f"unknown: nothing is there{written}")
            continue
        keep = place.keep if place else None
        for number, (name, made_at) in enumerate(found):
            if datetime.fromisoformat(made_at) + SECOND > joined_at:  # it has no fractions
                expires = _expires(number, keep, [each for _, each in found])
                yield ListedBackup(location, name, made_at, expires)


def _expires(number: int, keep: int | None, made_at: Sequence[str]) -> str:
    """Say when the backup after `number` newer ones is deleted."""
    if keep is None:
        return "never by itself: the last backup was made without --keep"
    further = max(1, keep - number)
    said = f"with the next backup but {further - 1}" if further > 1 else "with the next backup"
    said += f" (--keep {keep})"
    if len(made_at) > 1:
        newest, oldest = (datetime.fromisoformat(made_at[each]) for each in (0, -1))
        pause: timedelta = (newest - oldest) / (len(made_at) - 1)
        said += f", about {max(timezone.now(), newest + pause * further):%Y-%m-%d}"
    return said
