"""Ranks: the processes of one attempt that compute one job together, on one node or several.

Rank 0 runs the loop and decides; each other rank has a job of its own and follows. What is equal in
all ranks is saved once, what a rank has of its own as the part "rank1", "rank2", ... of the same
checkpoint.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from trainops.runtime.checkpoint.manifest import Candidate
from trainops.runtime.job import ResumableJob, StateDict

RANK_PART = re.compile(r"rank[1-9]\d*")


@dataclass(frozen=True, slots=True)
class Devices:
    """Which of an attempt's processes a job computes in; each has a device of its own.

    The nodes have equally many, one after the other: node 0 has rank 0.
    """

    rank: int = 0
    num_ranks: int = 1
    num_nodes: int = 1

    @property
    def num_local(self) -> int:
        """The number of ranks of one node."""
        return self.num_ranks // self.num_nodes

    @property
    def local_rank(self) -> int:
        return self.rank % self.num_local


ALONE = Devices()


@runtime_checkable
class RankedJob(ResumableJob, Protocol):
    """A job that several ranks can compute.

    state_dict() returns what is equal in all ranks, and what rank 0 has of its own.
    """

    def replicated(self) -> Mapping[str, object]:
        """Return the objects that must be equal in all ranks, by name."""

    def rank_state_dict(self) -> StateDict:
        """Return what a rank may have of its own: tensors, dicts and plain values."""

    def load_rank_state_dict(self, state: StateDict) -> None:
        """Put that back, after load_state_dict. Raises IncompatibleState."""


@runtime_checkable
class DividedJob(RankedJob, Protocol):
    """A job whose state may be divided over the ranks.

    To load it with another number of ranks, each needs the parts of all.
    """

    @property
    def is_divided(self) -> bool:
        """Whether this rank holds a part of the state only."""

    def receive_parts(self, of_ranks: Mapping[int, StateDict], *, is_check: bool = False) -> None:
        """Take what rank_state_dict() returned in the ranks 1, 2, ... of the state, by number.

        Called before load_state_dict. A divided job with as many ranks as then is given its own.
        `is_check`: this job alone finds out whether the ranks of its config can load the state.
        """


class Ranks(Protocol):
    """The other ranks, as the loop in rank 0 sees them. Every call may raise what one raised."""

    def make(self) -> None:
        """Have each make its job; returns at once."""

    def advance(self) -> None:
        """Have each advance its job once; returns at once."""

    def restore(self, candidate: Candidate) -> None:
        """Have each load a checkpoint; returns at once."""

    def wait(self) -> None:
        """Wait until each has done all that it was given to do."""

    def state_dict(self, job: ResumableJob) -> StateDict:
        """Return the part of each. Raises RanksDiverged, which names what differs from `job`'s."""

    def origin(self, error: BaseException) -> BaseException:
        """Return the error that came first: a rank that ends makes the others fail."""


class NoRanks:
    """There is one process only."""

    def make(self) -> None: ...
    def advance(self) -> None: ...
    def restore(self, candidate: Candidate) -> None: ...
    def wait(self) -> None: ...

    def state_dict(self, job: ResumableJob) -> StateDict:
        return {}

    def origin(self, error: BaseException) -> BaseException:
        return error


def is_rank_part(name: str) -> bool:
    return RANK_PART.fullmatch(name) is not None


def split(state: StateDict) -> tuple[StateDict, StateDict]:
    """Return the parts of a state without those of ranks, and those of ranks."""
    own = {name: part for name, part in state.items() if is_rank_part(name)}
    return {name: part for name, part in state.items() if name not in own}, own
