"""The messages between the leading process of an attempt and that of each other node.

Before anything else, both prove that they know the token of the attempt. A node does what the
leader sends in this order, by passing it on to each of its ranks.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from trainops.process.rank_protocol import Capture, Make, Restore, Step
from trainops.version import VERSION

MAX_LINE_BYTES = 4 * 1024**2  # of a message; contents are sent in pieces
PIECE_BYTES = 2**20  # of a content, before it is encoded
BEATS = 5  # in the time after which a silent node counts as lost
# A node waits for the leader twice as long as the leader for a node: the beats of the leader come
# from the process that computes, and code that holds the interpreter's lock delays them. This is
# the fencing deadline, and so below the time for which a process is granted.
LEADER_PATIENCE = 2.0


@dataclass(frozen=True, slots=True)
class NodeChallenge:
    """The first message of the leader."""

    nonce: str


@dataclass(frozen=True, slots=True)
class NodeProof:
    """A node, by its number from 1, knows the token; nonce: its own, for the leader."""

    node: int
    host: str
    nonce: str
    mac: str
    versions: Mapping[str, str]  # see `versions`


@dataclass(frozen=True, slots=True)
class LeaderProof:
    """The leader knows the token. store_port: of the store in which the ranks find each other."""

    mac: str
    store_port: int


@dataclass(frozen=True, slots=True)
class Beat:
    """The leader is there."""


@dataclass(frozen=True, slots=True)
class NodeBeat:
    """The node is there. The time is on its clock."""

    sent_at: float


@dataclass(frozen=True, slots=True)
class PrintStack:
    """Have a rank print its stack."""

    rank: int


@dataclass(frozen=True, slots=True)
class CheckpointPiece:
    """A piece of a file of the checkpoint that a node requested by `SendCheckpoint`."""

    name: str
    content: str  # base64


@dataclass(frozen=True, slots=True)
class CheckpointSent:
    """All files of the checkpoint are sent."""


@dataclass(frozen=True, slots=True)
class SendCheckpoint:
    """The node does not have the directory of the checkpoint of the last `Restore`."""


@dataclass(frozen=True, slots=True)
class RankDone:
    """See `Done`; of one rank of the node, as the next ones."""

    rank: int


@dataclass(frozen=True, slots=True)
class PartPiece:
    """A piece of the part of the state that a rank captured. is_first: of this capture."""

    rank: int
    content: str  # base64
    is_first: bool


@dataclass(frozen=True, slots=True)
class RankCaptured:
    """See `Captured`; all pieces of the part were sent."""

    rank: int
    fingerprints: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RankRaised:
    """See `RankError`. Both times are on the clock of the node."""

    rank: int
    at: float
    sent_at: float
    code: str
    message: str
    traceback: str


@dataclass(frozen=True, slots=True)
class RankEnded:
    """The process of a rank has ended; status: as `os.waitstatus_to_exitcode` gives it."""

    rank: int
    status: int


@dataclass(frozen=True, slots=True)
class Printed:
    """Whole lines that a rank printed."""

    rank: int
    text: str


@dataclass(frozen=True, slots=True)
class Leaving:
    """The worker of the node is stopping: save, and end the attempt."""


ToNode = (
    NodeChallenge | LeaderProof | Beat | Make | Step | Restore | Capture | PrintStack
    | CheckpointPiece | CheckpointSent
)  # fmt: skip
ToLeader = (
    NodeProof | NodeBeat | RankDone | PartPiece | RankCaptured | RankRaised | RankEnded | Printed
    | Leaving | SendCheckpoint
)  # fmt: skip


def versions() -> dict[str, str]:
    """Return the versions that must be equal on all nodes, by package."""
    return {"torch": str(torch.__version__), "trainops": VERSION}


def node_mac(token: str, challenge: str, node: int, nonce: str) -> str:
    """Return what proves that a node knows the token."""
    return _mac(token, f"node {node} {challenge} {nonce}")


def leader_mac(token: str, challenge: str, nonce: str, store_port: int) -> str:
    """Return what proves to a node that the leader knows the token."""
    return _mac(token, f"leader {store_port} {challenge} {nonce}")


def _mac(token: str, text: str) -> str:
    return hmac.digest(bytes.fromhex(token), text.encode(), "sha256").hex()
