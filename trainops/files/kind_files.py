"""The files of one kind of operation: a frozen descriptor, named by `Kind.files`.

The core of the file formats knows kinds only by it. It imports no torch: it is read by the web
process, too. What reads, checks and writes is named by strings and loaded when it is needed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from trainops.kind import Kind
from trainops.lazy import load


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """How a checkpoint becomes a file of the other tool.

    `write` names a function (state, config, Wanted) that returns Exported. Where every checkpoint
    `has_best`, its last and its best model are exported from the newest one; else `which` chooses
    the newest or the best checkpoint. It `takes_agent` where one of several agents is exported.
    """

    write: str
    has_best: bool = False
    takes_agent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KindFiles:
    """The strings name objects of `trainops.files.description`, where nothing else is said.

    `take_in` names a function (path, config, inputs, secret) that returns Imported. `tables` are
    names of tables, each with a function that makes the table, a data frame, of a finished job.
    """

    formats: tuple[str, ...] = ()  # Formats: how a file of the other tool is read and written
    directories: tuple[str, ...] = ()  # DirectoryFormats: directories that are one checkpoint
    take_in: str = ""  # empty: no file of another tool is taken
    export: Export | None = None
    checks: str = ""  # StateChecks, of our own checkpoints; empty: nothing is compared
    tables: Mapping[str, str] = field(default_factory=dict)

    def import_all(self) -> None:
        """Import what is named, which is otherwise done when it is needed."""
        write = self.export.write if self.export else ""
        named = (*self.formats, *self.directories, *self.tables.values())
        for path in filter(None, (*named, self.take_in, write, self.checks)):
            load(path)


NONE = KindFiles()


def files_of(kind: Kind) -> KindFiles:
    return cast(KindFiles, load(kind.files)) if kind.files else NONE


def not_supported(kind: str) -> str:
    """Return what to tell where operations of a kind have no files of other tools."""
    return f"Operations of kind {kind!r} do not support files of other tools."
