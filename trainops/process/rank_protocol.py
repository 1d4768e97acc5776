"""The messages between rank 0 of an attempt and its other ranks, as frozen dataclasses.

A rank does what it receives in this order. It answers `Step` only with an error.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from trainops.runtime.checkpoint.manifest import Candidate


@dataclass(frozen=True, slots=True)
class Make:
    """Join the process group, and make the job."""


@dataclass(frozen=True, slots=True)
class Step:
    """Advance the job once."""


@dataclass(frozen=True, slots=True)
class Restore:
    """Load a checkpoint into the job."""

    candidate: Candidate


@dataclass(frozen=True, slots=True)
class Capture:
    """Write the part of this rank into the memory that it shares with rank 0."""


ToRank = Make | Step | Restore | Capture


@dataclass(frozen=True, slots=True)
class Done:
    """`Make` or `Restore` is done."""


@dataclass(frozen=True, slots=True)
class Captured:
    """`Capture` is done; fingerprints: digests of what must be equal in all ranks."""

    fingerprints: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RankError:
    """The rank ends with an exception, which was raised at `at` on the clock of deadlines."""

    at: float
    code: str  # a reason code
    message: str
    traceback: str


ToRankZero = Done | Captured | RankError
