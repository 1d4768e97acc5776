"""Where a checkpoint stands, in the words of its kind. Without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Position:
    """`counts` is what a client program reads ({"epoch": 29}), `text` what people read."""

    counts: Mapping[str, Any]
    text: str


class Positions(Protocol):
    """What a kind says of its checkpoints by their JSON state alone."""

    SUMMARY: tuple[str, ...]  # the keys of the state that a list of checkpoints shows
    ALSO_READ: tuple[str, ...]  # further keys that `position` looks at

    BEST: tuple[str, ...]  # the way to the best metric ever measured in the state; empty: none

    def position(self, state: Mapping[str, Any], step: int) -> Position:
        """Return where a state stands; keys may be missing in states of older versions."""
