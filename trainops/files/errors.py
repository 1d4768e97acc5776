"""What can be wrong with a file from elsewhere. Whatever the bytes, nothing else is raised."""

from collections.abc import Mapping
from typing import ClassVar


class FormatError(Exception):
    """The file cannot be used. The message says what was found and what is allowed."""

    code: ClassVar[str] = "UNUSABLE_FILE"

    def __init__(self, problem: str, **details: object) -> None:
        super().__init__(problem)
        self.details = details


class DamagedFile(FormatError):
    """The bytes are not, or no longer, a whole archive as torch.save writes it."""


class UnsupportedFile(FormatError):
    """A file that no operation of this kind and config can begin with."""

    code: ClassVar[str] = "FORMAT_NOT_SUPPORTED"


class ForbiddenContent(FormatError):
    """Reading the file would take more than tensors, NumPy arrays and plain values."""

    def __init__(self, needed: str) -> None:
        super().__init__(
            f"the file needs {needed}, which is not supported; allowed: tensors, NumPy arrays of "
            "numbers, dicts, lists, tuples, strings and numbers"
        )
        self.needed = needed


class FileTooLarge(FormatError):
    """The file declares far more than it holds."""


class DigestMismatch(FormatError):
    """The file is not the one that its .sha256 was written for."""


class UnknownFormat(FormatError):
    """A whole and harmless file, but of none of the known formats."""


class UnsupportedVersion(FormatError):
    """A known format in a version that is not read."""


class InvalidFields(FormatError):
    """`errors` maps a place in the file to what was found there and what is allowed."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{place}: {problem}" for place, problem in errors.items()))
        self.errors = dict(errors)


class FaultyExport(FormatError):
    """A file that was written here does not pass its own checks. It is removed again."""
