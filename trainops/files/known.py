"""The formats of other tools that are spoken here: those that the registered kinds describe."""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar, cast

from trainops.files.description import DirectoryFormat, FileFormat, StateChecks
from trainops.files.errors import UnknownFormat
from trainops.files.kind_files import files_of
from trainops.files.outline import Outline, TensorOutline, entries_of
from trainops.kind import KINDS, Kind
from trainops.lazy import load
from trainops.runtime.subtasks import is_of_subtask

File = TypeVar("File")


def formats() -> list[FileFormat]:
    """Return the formats of files, in the order of the kinds."""
    return [load(each) for kind in KINDS.values() for each in files_of(kind).formats]


def directory_formats() -> list[DirectoryFormat]:
    return [load(each) for kind in KINDS.values() for each in files_of(kind).directories]


def directory_format_of(path: Path) -> DirectoryFormat | None:
    """Return the format of the directory that is a checkpoint of another tool, else None."""
    return next((each for each in directory_formats() if each.is_one(path)), None)


def format_of(file: object) -> FileFormat:
    """Return the format that a file is written in."""
    return next(each for each in formats() if isinstance(file, each.file))


def expected(file: object, wanted: type[File]) -> File:
    """Return the file, which must be of this class. Raises UnknownFormat."""
    if not isinstance(file, wanted):
        asked = next(each for each in formats() if each.file is wanted)
        raise UnknownFormat(f"this is a file of {format_of(file).title}, not of {asked.title}")
    return file


def recognise(outline: Outline) -> FileFormat:
    """Return the format of a file. Raises UnknownFormat, which names the keys found."""
    entries = entries_of(outline.root)
    if entries is None:
        raise UnknownFormat(f"the file holds a {type(outline.root).__name__} and no dict of parts")
    known = formats()
    for each in known:
        if any(marks <= entries.keys() for marks in each.marks):
            return each
    if entries and all(isinstance(each, TensorOutline) for each in entries.values()):
        for each in known:
            if each.is_of_tensors:
                return each
    keys = ", ".join(map(str, list(entries)[:10])) or "none"
    hints = [each.hint for each in sorted(known, key=_order) if each.hint]
    raise UnknownFormat(f"the keys at the top are {keys}; {', '.join(hints)}")


def _order(known: FileFormat) -> tuple[bool, int]:
    return known.is_of_tensors, len(known.title)  # shortest first, what has no keys last


def checks_of(kind: Kind) -> StateChecks | None:
    """Return what is checked of this kind's checkpoints; None: nothing."""
    path = files_of(kind).checks
    return cast(StateChecks, load(path)) if path else None


def checks_for(identity: Mapping[str, object], state: Mapping[str, object]) -> StateChecks | None:
    """Return what is checked of a checkpoint, by its identity and its JSON state.

    Where no known kind is named (older checkpoints name none), the state tells it; so it does of a
    subtask, whose state is not of the kind that is named.
    """
    name = str(identity.get("kind", ""))
    if name in KINDS and not is_of_subtask(identity):
        return checks_of(KINDS[name])
    known = map(checks_of, KINDS.values())
    return next((each for each in known if each is not None and each.mark in state), None)
