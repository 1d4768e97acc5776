"""The messages between the processes of an attempt, as frozen dataclasses.

The supervisor (in the worker process) and the child (which computes) exchange `ToChild` and
`ToSupervisor`; the child and its second process, which checks its first checkpoint, exchange
`ToSecond` and `Checked`.

Messages are in order: whatever was sent before `Staged` is durable before that checkpoint is.
Ledger entries are durable before what they describe is released.
"""

import base64
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

from trainops.media.content import require_sound
from trainops.media.errors import MediaError
from trainops.media.items import MediaItem
from trainops.plain import Config
from trainops.runtime.checkpoint.manifest import Candidate, CheckpointType, StagedCheckpoint
from trainops.runtime.ledger import Entry
from trainops.runtime.receipt import Receipt
from trainops.runtime.subtasks import Subtask, SubtaskResult

Directive = Literal["CANCEL", "PREEMPT"]


def now() -> float:
    """Seconds on the clock of deadlines (CLOCK_BOOTTIME), which runs while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


# Supervisor to child.


@dataclass(frozen=True, slots=True)
class LedgerState:
    """The ledger of an operation. secret: the key of its random numbers, hexadecimal."""

    secret: str = field(repr=False)
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """The nodes of an attempt, as each of them knows them."""

    num_nodes: int
    token: str = field(repr=False)  # that all processes of the attempt know, hexadecimal
    address: str  # at which the other nodes reach this one
    join_seconds: float  # in which all nodes must connect to the leader
    silence_seconds: float  # after which a node that sends nothing counts as lost


@dataclass(frozen=True, slots=True)
class Start:
    """The first message: what to run, and what to start from."""

    kind: str
    config: Config  # as in the operation's row; parsed by the kind
    inputs: Mapping[str, Path]
    directory: Path  # where checkpoints are written
    storage_id: str  # expected next to `directory`; empty: not checked
    operation_id: str
    attempt: int  # its number
    config_hash: str
    input_digests: Mapping[str, str]  # BLAKE3 of each dataset's content and each model's manifest
    has_self_check: bool  # whether a second process checks the first checkpoint
    candidates: tuple[Candidate, ...]  # to resume from, the newest first
    reserve_bytes: int
    grant_until: float  # deadline on the clock of `now`
    environment: Mapping[str, str] = field(default_factory=dict)
    ledger: LedgerState | None = None
    subtask: Subtask | None = None  # if the operation is one
    requires_exact: bool = False  # fail where the resume would not be exact
    num_ranks: int = 1  # processes that compute it, on all nodes
    nodes: NodeGroup | None = None  # None: one node

    @property
    def identity(self) -> Mapping[str, object]:
        """What every manifest of this attempt says about its origin, in JSON values."""
        return {
            "operation_id": self.operation_id,
            "attempt": self.attempt,
            "kind": self.kind,
            "config_hash": self.config_hash,
            "config": self.config,
            "inputs": self.input_digests,
            **({} if self.subtask is None else {"subtask": self.subtask.name}),
        }


@dataclass(frozen=True, slots=True)
class Join:
    """The first message to the process of another node; start: as the leader's, without files."""

    start: Start
    node: int  # from 1
    host: str  # of this node, as texts name it
    leader: str  # its address
    port: int


@dataclass(frozen=True, slots=True)
class Grant:
    """The lease was renewed: the child may run until this deadline."""

    until: float


@dataclass(frozen=True, slots=True)
class Stop:
    """Save a checkpoint at the next safe point, and end."""

    directive: Directive


@dataclass(frozen=True, slots=True)
class Salvage:
    """Save the copy of the newest safe point that is in memory."""

    type: CheckpointType


@dataclass(frozen=True, slots=True)
class Committed:
    """The oldest staged checkpoint without an answer is committed."""


@dataclass(frozen=True, slots=True)
class Refused:
    """It is not: this attempt no longer owns the operation."""


@dataclass(frozen=True, slots=True)
class NotStored:
    """It could not be stored; the run continues."""

    error: str


@dataclass(frozen=True, slots=True)
class Appended:
    """The entries of the last `Append` are durable."""


@dataclass(frozen=True, slots=True)
class SubtasksStarted:
    """The subtasks of the last `StartSubtasks` exist; age_seconds: for how long."""

    group: int
    age_seconds: float


@dataclass(frozen=True, slots=True)
class SubtaskEnded:
    result: SubtaskResult


ToChild = (
    Start | Join | Grant | Stop | Salvage | Committed | Refused | NotStored | Appended
    | SubtasksStarted | SubtaskEnded
)  # fmt: skip


# Child to supervisor.


@dataclass(frozen=True, slots=True)
class Listening:
    """The leading process of several nodes waits for the others at this port of its address."""

    port: int


@dataclass(frozen=True, slots=True)
class NodeSilent:
    """Another node does not respond any more; the loop may wait for it in vain."""

    message: str


@dataclass(frozen=True, slots=True)
class Restored:
    """The job is ready, restored as the receipt says."""

    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Corrupted:
    """A candidate cannot be used; the next one is tried."""

    directory: str
    missing: tuple[str, ...]
    altered: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class ProgressUpdate:
    """Progress. points: metrics since the last report, as (step, Unix time, value by name)."""

    step: int
    total_steps: int | None
    place: str
    points: tuple[tuple[int, float, Mapping[str, float]], ...] = ()


@dataclass(frozen=True, slots=True)
class MediaLogged:
    """An item that the recipe logged; see `MediaItem`. content: base64."""

    step: int
    at: float  # Unix time
    is_early: bool
    name: str
    index: int
    type: str
    caption: str
    content: str

    @classmethod
    def of(cls, item: MediaItem, at: float) -> Self:
        content = base64.b64encode(item.content).decode()
        return cls(
            item.step, at, item.is_early, item.name, item.index, item.type, item.caption, content
        )

    def item(self) -> MediaItem:
        """Return the item. Raises MediaError if it is not sound."""
        try:
            content = base64.b64decode(self.content, validate=True)
        except ValueError:
            raise MediaError(f"content: got {self.content[:20]!r}…; allowed: base64") from None
        item = MediaItem(
            self.step, self.is_early, self.name, self.index, self.type, self.caption, content
        )
        require_sound(item)
        return item


@dataclass(frozen=True, slots=True)
class Append:
    """Ledger entries that must be durable before the child continues."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Staged:
    """A checkpoint is on disk and waits for its commit."""

    checkpoint: StagedCheckpoint


@dataclass(frozen=True, slots=True)
class SaveFailed:
    error: str


@dataclass(frozen=True, slots=True)
class Salvaging:
    """`Salvage` was received."""

    type: CheckpointType


@dataclass(frozen=True, slots=True)
class Salvaged:
    """`Salvage` is done, whether a checkpoint was saved or not."""

    type: CheckpointType


@dataclass(frozen=True, slots=True)
class StartSubtasks:
    """Run these subtasks of one group, which start from the checkpoint in `directory`."""

    directory: str
    subtasks: tuple[Subtask, ...]


@dataclass(frozen=True, slots=True)
class DropSubtasks:
    """End those of these subtasks that are not done."""

    group: int
    indexes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of the self-check of the first checkpoint.

    verdict: "equal"; "differs", in these parts; "loaded", where no steps were compared;
    "not_loaded", for this reason; "inexact", where these parts are not restored bit for bit, so
    that nothing was compared; "not_made", for this reason; "pending".
    """

    checkpoint: str  # empty: there was none yet
    step: int
    until_step: int
    verdict: str
    parts: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Succeeded:
    result: Mapping[str, object]  # JSON values, encoded by `lossless`


@dataclass(frozen=True, slots=True)
class Stopped:
    """is_signalled: because the process received a signal."""

    directive: Directive
    is_signalled: bool


@dataclass(frozen=True, slots=True)
class Failed:
    code: str  # a reason code
    message: str
    traceback: str


Ended = Succeeded | Stopped | Failed
OfNodes = Listening | NodeSilent
ToSupervisor = (
    Restored | Corrupted | ProgressUpdate | MediaLogged | Append | Staged | SaveFailed | Salvaging
    | Salvaged | StartSubtasks | DropSubtasks | Finding | OfNodes | Ended
)  # fmt: skip


# Child to its second process, and back.


@dataclass(frozen=True, slots=True)
class Read:
    """Read this checkpoint into memory."""

    checkpoint: Candidate


@dataclass(frozen=True, slots=True)
class Advance:
    """Load it, and advance to a step. is_compared: and send the digests of the state there."""

    until: int
    entries: tuple[Entry, ...]  # of the ledger, so far
    is_compared: bool


ToSecond = Read | Advance


@dataclass(frozen=True, slots=True)
class Checked:
    """The second process's result: digests of its state by part, or a verdict of `Finding`."""

    verdict: str = ""
    digests: Mapping[str, str] | None = None
    parts: tuple[str, ...] = ()
    reason: str = ""
