"""The storages of this installation: bound once, and recognised from then on.

The database holds the id of the storage, and the storage holds the same id in an identity file. A
storage without the file is away (an unmounted directory looks like an empty one), and one with
another id belongs to another installation: neither is swept, marked or written to.
"""

import logging
from secrets import token_hex
from typing import Protocol

from apps.installation.models import StorageBinding
from trainops.clock import DatabaseNow
from trainops.paths import COMMAND
from trainops.runtime.checkpoint.storage_identity import FILE
from trainops.runtime.errors import StorageAway

logger = logging.getLogger(__name__)


class StorageLocation(Protocol):
    """A location of checkpoints or datasets, with the operations needed to recognise it."""

    name: str  # primary key of its binding

    @property
    def location(self) -> str:
        """For people: a directory or a bucket."""

    def read_id(self) -> str | None:
        """Return the id in its identity file; None where it has none. Raises OSError."""

    def write_id(self, storage_id: str) -> None:
        """Write its identity file; make the place first where it is not there. Raises OSError."""

    def is_used(self) -> bool:
        """Whether it holds files of any installation. Raises OSError."""

    def num_rows(self) -> int:
        """Return how many rows of this database have files there."""

    def holds_some(self) -> bool:
        """Whether files of any of these rows are there. Raises OSError."""


TAKE_OVER = f"{COMMAND} up --take-over-storage"


class ForeignStorage(StorageAway):
    """The storage belongs to another installation."""

    def __init__(self, place: StorageLocation, why: str) -> None:
        super().__init__(
            f"the storage of {place.name}, {place.location}, {why}. Configure the location that "
            "the other machines use or, if no other installation uses this one, take it over: "
            f"{TAKE_OVER}"
        )


def require(place: StorageLocation) -> str:
    """Return the id of the storage after a look whether it is there; bind it at the first use.

    Raises:
        StorageAway: its identity file is missing, or it belongs to another installation.
        OSError: it does not answer.
    """
    binding = expect(place)
    found = look(place, binding)
    if binding.bound_at is None:
        StorageBinding.objects.filter(pk=place.name).update(bound_at=DatabaseNow())
        logger.info("the storage of %s is %s: %s", place.name, place.location, found)
    return found


def expect(place: StorageLocation) -> StorageBinding:
    """Return which storage is expected there. Raises OSError as `require`, before the first use."""
    return StorageBinding.objects.filter(pk=place.name).first() or _introduce(place)


def look(place: StorageLocation, binding: StorageBinding) -> str:
    """Return the id of the storage that is there, without asking the database.

    Raises what `require` raises.
    """
    found = place.read_id()
    if found is None and binding.bound_at is None:
        place.write_id(binding.storage_id)
        found = binding.storage_id
    if found is None:
        raise _away(place, f"its identity file {FILE} is missing")
    if found != binding.storage_id:
        raise ForeignStorage(place, f"belongs to another installation ({FILE} has the id {found})")
    return found


def problem(place: StorageLocation) -> str:
    """Return why the storage cannot be used now; empty where it can."""
    try:
        require(place)
    except OSError as error:
        return str(error)
    return ""


def take_over(place: StorageLocation) -> str:
    """Bind the storage to this installation under a new id; it becomes foreign to the other one.

    Raises OSError.
    """
    storage_id = token_hex(16)
    StorageBinding.objects.update_or_create(
        name=place.name, defaults={"storage_id": storage_id, "bound_at": None}
    )
    place.write_id(storage_id)
    return require(place)


def _away(place: StorageLocation, why: str) -> StorageAway:
    return StorageAway(
        f"the storage of {place.name}, {place.location}, is not mounted, or was emptied: {why}. "
        f"If it was emptied on purpose, and no other machine uses it, take it over: {TAKE_OVER}"
    )


def _introduce(place: StorageLocation) -> StorageBinding:
    """Record the id of a new storage in the database, before the identity file is written.

    Raises StorageAway where it is not this installation's to bind.
    """
    found = place.read_id()
    if known := StorageBinding.objects.filter(pk=place.name).first():
        return known  # another process introduced it a moment ago
    if found is not None:
        raise ForeignStorage(place, f"belongs to another installation ({FILE} has the id {found})")
    if num_rows := place.num_rows():  # from before there were identity files
        if not place.holds_some():
            raise _away(place, f"none of the {num_rows} files in the database is there")
    elif place.is_used():
        raise ForeignStorage(place, "holds files that are not in this database")
    binding, _ = StorageBinding.objects.get_or_create(
        name=place.name, defaults={"storage_id": token_hex(16)}
    )
    return binding
