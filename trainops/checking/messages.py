"""The messages between a check and the processes that run its attempts, as frozen dataclasses."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from trainops.plain import Config
from trainops.runtime.checkpoint.manifest import Candidate
from trainops.runtime.ledger import Entry

Ending = Literal["completed", "stopped", "failed"]


@dataclass(frozen=True, slots=True)
class CheckedJob:
    """What is checked: the config of a kind, and the files that it names by id."""

    kind: str
    config: Config  # as JSON; parsed by the kind
    inputs: Mapping[str, Path]


@dataclass(frozen=True, slots=True)
class StopPoint:
    """A safe point. milestones: how many checkpoints have come due, as after epochs.

    is_over: the run ends here; a loop is at the same step before, when its end is not known yet.
    """

    step: int
    is_evaluating: bool = False
    milestones: int = 0
    is_over: bool = False


@dataclass(frozen=True, slots=True)
class AttemptRequest:
    """Run a job from its start or from a checkpoint, and stop it.

    stop: where; None: after `max_steps` safe points or `max_seconds`.
    graph_steps: after which steps the objects of the job are described.
    clock: seconds since the epoch that the recipe's clock starts from; None: the real clock.
    draws: a file for the draws in worker processes of loaders; None: they are not observed.
    """

    subject: CheckedJob
    directory: Path
    number: int = 1
    candidate: Candidate | None = None
    entries: tuple[Entry, ...] = ()  # of the ledger, by earlier attempts
    stop: StopPoint | None = None
    max_steps: int = 2**62
    max_seconds: float = float("inf")
    graph_steps: tuple[int, ...] = ()
    clock: float | None = None
    draws: Path | None = None


@dataclass(frozen=True, slots=True)
class Compare:
    """Name the values that differ between two checkpoints."""

    one: Candidate
    other: Candidate


@dataclass(frozen=True, slots=True)
class Measure:
    """Measure the time of a step, up to this step, `repeats` times in each way."""

    subject: CheckedJob
    directory: Path
    until: int
    every_steps: int  # between checkpoints, where there are some
    repeats: int


Request = AttemptRequest | Compare | Measure


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One plain value that a job's objects lead to, and where it is.

    owner: path of the outermost object with state_dict and load_state_dict around the value.
    iterator: path of the outermost iterator around it.
    """

    digest: str
    shown: str
    holder: str  # path of the object that has it as an attribute or item
    holder_type: str
    is_module: bool = False  # the holder is an nn.Module
    is_registered: bool = False  # a parameter or buffer
    is_local: bool = False  # reached through a local variable of the recipe's function
    is_generator: bool = False  # the state of a random generator
    is_opaque: bool = False  # its position cannot be read
    owner: str = ""
    owner_type: str = ""
    iterator: str = ""
    iterator_type: str = ""


@dataclass(frozen=True, slots=True)
class Graph:
    """The plain values of a job's objects after one step, by path."""

    step: int
    leaves: Mapping[str, Leaf]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempted:
    """How an attempt ended. files: digests of its last checkpoint's files, by name."""

    ending: Ending
    error: str = ""
    trace: str = ""
    step: int = 0
    checkpoint: Candidate | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    result: str = ""  # as JSON
    curve: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    points: tuple[StopPoint, ...] = ()
    inexact: Mapping[str, str] = field(default_factory=dict)  # of the receipt: why, by part
    uncertain: Mapping[str, str] = field(default_factory=dict)  # by the job: why, by part
    entries: tuple[Entry, ...] = ()
    graphs: tuple[Graph, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CheckpointDifferences:
    """Paths of the values that differ between two checkpoints."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Milliseconds per step in each repeat: without the loop, with it, and with saving."""

    bare: tuple[float, ...]
    runner: tuple[float, ...]
    saving: tuple[float, ...]


Answer = Attempted | CheckpointDifferences | StepTimes
