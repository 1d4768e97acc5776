"""Where a checkpoint stands, in the words of its kind. Without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Position:
    """`counts` is what a client program reads ({"epoch": 29}), `text` what people read.

    `group`: the group of subtasks that start from this state; None: no subtasks do.
    """

    counts: Mapping[str, object]
    text: str
    group: int | None = None


class Positions(Protocol):
    """What a kind says of its checkpoints by their JSON state alone."""

    SUMMARY: tuple[str, ...]  # the keys of the state that a list of checkpoints shows
    ALSO_READ: tuple[str, ...]  # further keys that `position` looks at

    BEST: tuple[str, ...]  # the way to the best metric ever measured in the state; empty: none

    def position(self, state: Mapping[str, object], step: int) -> Position:
        """Return where a state stands; keys may be missing in states of older versions."""
