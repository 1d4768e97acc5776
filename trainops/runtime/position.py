"""Where a checkpoint stands, in the words of its kind. Without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from trainops.quantities import plural


@dataclass(frozen=True, slots=True)
class Position:
    """`counts` is what a client program reads ({"epoch": 29}), `text` what people read.

    `group`: the group of subtasks that start from this state; None: no subtasks do.
    """

    counts: Mapping[str, object]
    text: str
    group: int | None = None


def completed(unit: str, count: int, total: int | None = None) -> str:
    """Return how many units are completed, in the words of every page, command, log and response.

    "epoch 82" names the end of the 82nd epoch; with a total it is "82 of 300 epochs".
    """
    return f"{unit} {count}" if total is None else f"{count} of {plural(total, unit)}"


def with_step(position: str, unit: str, step: int) -> str:
    """Return a position that names the step, too: "epoch 82 (step 1890)"."""
    named = f"{unit} {step}"
    return position if position.endswith(named) else f"{position} ({named})"


class Positions(Protocol):
    """What a kind says of its checkpoints by their JSON state alone."""

    SUMMARY: tuple[str, ...]  # the keys of the state that a list of checkpoints shows
    ALSO_READ: tuple[str, ...]  # further keys that `position` looks at

    BEST: tuple[str, ...]  # the way to the best metric ever measured in the state; empty: none

    def position(self, state: Mapping[str, object], step: int) -> Position:
        """Return where a state stands; keys may be missing in states of older versions."""
