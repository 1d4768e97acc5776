"""The description of a directory as JSON: what rows store and pages show."""

from typing import TypedDict


class ClassCount(TypedDict):
    """A class of images and the number of its files."""

    name: str
    count: int


class ColumnType(TypedDict):
    """A column of a table, or an array of a file, and its type."""

    name: str
    type: str


class DirectoryDescription(TypedDict):
    """The description of a directory; `num_examples` is None where no header says it."""

    layout: str
    title: str
    num_files: int
    num_bytes: int
    num_examples: int | None
    classes: list[ClassCount]
    columns: list[ColumnType]


class DirectoryVerification(TypedDict):
    """What was compared with the manifest, and at most 100 differences.

    Names and sizes of all files were compared, and the content of those that were read: all, or
    those that `seed` draws.
    """

    problems: list[str]
    num_files: int
    num_files_read: int
    num_bytes: int
    num_bytes_read: int
    seed: int | None
