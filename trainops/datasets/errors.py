"""What can be wrong with a directory of data."""

from collections.abc import Sequence

from trainops.runtime.errors import InputError

MAX_NAMED = 5


class DataError(InputError):
    """Data that cannot be read; the message names the file and what is wrong with it.

    It is made from one text, so that worker processes of loaders can pass it on.
    """

    def __init__(self, problem: str) -> None:
        super().__init__({"data": problem})


class DirectoryChanged(DataError):
    """A registered directory no longer holds what was registered."""


class DirectoryAway(OSError):
    """A registered directory is not on this machine, or not mounted; it may be on another one.

    Also: the bucket of a registered prefix does not answer, or does not accept the credentials.
    """


def changed(root: object, differences: Sequence[str]) -> DirectoryChanged:
    """Return the error that names the first of the differences ("a.png is missing")."""
    first = ", ".join(differences[:MAX_NAMED])
    more = len(differences) - MAX_NAMED
    rest = f", and {more} more" if more > 0 else ""
    return DirectoryChanged(
        f"{root} is not the directory that was registered: {first}{rest}. Restore these files, or "
        "register the directory again and use its new id"
    )
