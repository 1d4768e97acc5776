"""How a kind describes its files to the core: what a KindFiles names, with functions for torch."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from trainops.files.checks import Step
from trainops.files.fields import Fields
from trainops.runtime.job import StateDict
from trainops.runtime.ledger import Entry
from trainops.runtime.receipt import Receipt


@dataclass(frozen=True, slots=True)
class Weights:
    """`what` says which model of the checkpoint it is."""

    what: str
    tensors: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFormat:
    """How the files of one tool are read and written.

    `file` is the class of what is read; functions take one of it unless they take a tree, which is
    what the archive holds. `marks` are the keys, each set of which gives a file away; `hint` tells
    a person which. `title` completes "a file of".
    """

    file: type[object]
    title: str
    hint: str = ""
    marks: tuple[frozenset[str], ...] = ()
    is_of_tensors: bool = False  # what has no marks and is nothing but named tensors
    has_enums: bool = False
    has_digest: bool = False  # a .sha256 is written beside it
    named: re.Pattern[str] | None = None  # in a directory of several; its groups are numbers
    named_like: str = ""  # how a person would describe these names

    check_version: Callable[[Mapping[str, object]], str]  # of an outline; raises UnsupportedVersion
    parse: Callable[[Mapping[str, object]], object]  # raises InvalidFields
    to_tree: Callable[[Any], StateDict]
    describe: Callable[[Any], str]
    notices: Callable[[Any], Sequence[str]] = lambda file: ()  # what is odd in its fields
    disagreements: Callable[[Any], Mapping[str, str]]
    warnings: Callable[[Any], Sequence[str]] = lambda file: ()  # what is odd in how they agree
    compared: str = "positions, optimizers, schedules and shapes agree"
    weights: Callable[[Any], Weights]


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryFormat:
    """A directory of another tool that is one checkpoint."""

    files: tuple[str, ...]  # the names that belong to it
    archives: tuple[str, ...]  # those of them that torch.save or safetensors wrote
    mark: str  # the name that gives a packed one away
    named_like: str  # how a person would describe the names of such directories
    is_one: Callable[[Path], bool]
    steps: Callable[[Path], Sequence[Step]]  # of its verification
    read: Callable[[Path], object]  # a file of one of the kind's Formats; raises FormatErrors
    newest: Callable[[Path], list[Path]]  # of a directory of several: the furthest first


@dataclass(frozen=True, slots=True, kw_only=True)
class FitCheck:
    """Steps of a job that show whether a state fits it.

    `before` is given a fresh job and returns what it tells; it may advance the job. `after` is
    given the job that has loaded the state, the state and the settings, returns what is odd, and
    raises InvalidFields. Then the job makes a step. `compared` says all that.
    """

    before: Callable[[Any], object]
    after: Callable[[Any, StateDict, Any], list[str]]
    compared: str


def _unchanged(parts: StateDict) -> Mapping[str, object]:
    return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChecks:
    """What is checked of the checkpoints of one kind.

    `mark` is the key that only JSON states of this kind have: checkpoints of older versions do not
    name their kind. `check_fields` is given all parts and the JSON state. `numbers` returns of the
    other parts those values that must be finite. `disagreements` is given the manifest's step.
    """

    mark: str
    title: str = "an operation"
    check_fields: Callable[[Fields, Fields], None] = lambda parts, state: None
    numbers: Callable[[StateDict], Mapping[str, object]] = _unchanged
    disagreements: Callable[[int, StateDict], Mapping[str, str]]
    compared: str
    trial: FitCheck | None = None


@dataclass(frozen=True, slots=True)
class Imported:
    """The parts of a checkpoint as CheckpointStore.write takes them, and what they are."""

    step: int
    state: StateDict
    receipt: Receipt
    entries: Sequence[Entry] = ()  # of the ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSubject:
    """What an export is of, besides state and config.

    `name` is the operation's, `saved_at` in ISO 8601; `entries` are all of the ledger.
    """

    name: str
    saved_at: str
    which: str = "last"
    agent: int | None = None
    entries: Sequence[Entry] = ()  # of the ledger


@dataclass(frozen=True, slots=True)
class Exported:
    """`name` is what the other tool would call the file; empty: as it was asked for."""

    file: object
    name: str = ""
