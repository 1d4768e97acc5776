"""The loops that a run has entered, and the way back into them.

A state holds, for each loop, how often it was entered and how many of its items were taken, and
the names of the loops that were open, outermost first. A resume calls the same function again:
loops that were complete yield nothing, those around the saved place yield their current item once
more, and the innermost one continues with its next item.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trainops.runtime.errors import IncompatibleState
from trainops.runtime.position import completed

ROOT = ""


@dataclass(slots=True)
class Counts:
    """One loop: `passes` over all its items, of which `opens` in the enclosing loop's iteration."""

    parent: str = ROOT
    passes: int = 0
    opens: int = 0
    taken: int = 0  # items of the latest pass
    length: int | None = 0  # None: not known before the end
    latest_length: int = 0  # of the newest pass of such a loop that came to its end
    total: int = 0  # items of all passes
    counted: int = 0  # batches of the pass that another number of ranks has taken

    def to_state(self) -> dict[str, Any]:
        found = asdict(self)
        return found if self.counted else {n: each for n, each in found.items() if n != "counted"}

    @property
    def likely_length(self) -> int | None:
        return self.latest_length or None if self.length is None else self.length


class Course:
    """Which loops are open.

    `at_head` is called before the first loop, and where a loop is about to take its next item.
    """

    def __init__(self, at_head: Callable[[], None]) -> None:
        self.open: list[str] = []  # outermost first
        self.counts: dict[str, Counts] = {}
        self._at_head = at_head
        self._at_work: list[str] = []  # open where the latest item was taken, until its loop's head
        self._target: list[str] | None = None  # the open loops of the state that is resumed
        self._passed: dict[str, int] = {}  # opens since the resume began

    @property
    def is_resuming(self) -> bool:
        return self._target is not None

    def enter(self, name: str, length_of: Callable[[int], int | None]) -> int | None:
        """Open a loop; return the index of its first item, or None if it is complete already.

        `length_of` returns the number of items of the pass with a number; None if it is not known.
        Raises IncompatibleState where a resume took another way than the run before.
        """
        if not self.counts:
            self._at_head()  # a state may be loaded here, before the first loop of all
        parent = self.open[-1] if self.open else ROOT
        counts = self.counts.setdefault(name, Counts(parent))
        if counts.parent != parent or name in self.open:
            raise ValueError(_of_two_places(name, counts.parent, parent))
        if self._target is not None:
            return self._enter_again(name, counts, length_of)
        counts.passes, counts.opens, counts.taken = counts.passes + 1, counts.opens + 1, 0
        counts.counted = 0
        counts.length = length_of(counts.passes - 1)
        self.open.append(name)
        return 0

    def head(self, name: str, number: int) -> None:
        """A loop is about to take an item of its pass with a number: the loops in it begin anew.

        Those that are still open there were left without their end. Raises ValueError where they
        take an item nevertheless.
        """
        if name not in self.open or self.counts[name].passes != number:
            problem = f"the loop {name!r} takes an item after the loop around it has taken another"
            allowed = "a loop that is complete or left within an iteration; run.combine for `zip`"
            raise ValueError(f"{problem}; allowed: {allowed}")
        del self.open[self.open.index(name) + 1 :]
        self._at_work = self.open[:-1]
        if self._target not in (None, self.open):
            return  # on the way back
        self._target = None
        self._begin_anew(name)
        counts = self.counts[name]
        if len(self.open) > 1 or counts.taken != counts.length:  # else the function is at its end
            self._at_head()

    def take(self) -> None:
        counts = self.counts[self.open[-1]]
        counts.taken, counts.total = counts.taken + 1, counts.total + 1
        self._at_work = self.open[:]

    def leave(self, name: str, number: int) -> None:
        """Close a pass of a loop, and the loops in it that were left without their end."""
        if name in self.open and self.counts[name].passes == number:
            del self.open[self.open.index(name) :]

    def to_state(self) -> dict[str, Any]:
        return {
            "open": list(self.open),
            "loops": {name: each.to_state() for name, each in self.counts.items()},
        }

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go the way to this state. Raises IncompatibleState."""
        try:
            counts = {name: Counts(**each) for name, each in state["loops"].items()}
            target = [str(name) for name in state["open"]]
            is_sound = all(
                type(value) is int and value >= 0
                for each in counts.values()
                for value in (
                    each.passes,
                    each.opens,
                    each.taken,
                    each.latest_length,
                    each.total,
                    each.counted,
                )
            )
            is_sound = is_sound and all(name in counts for name in target)
            is_sound = is_sound and all(
                each.length is None or type(each.length) is int for each in counts.values()
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise IncompatibleState(f"the loops cannot be read: {error!r}") from error
        if not is_sound:
            raise IncompatibleState(f"the loops cannot be read: {dict(state)!r:.200}")
        self.counts, self._target, self._passed = counts, target or None, {}

    def place(self) -> str:
        """Return how many items of each open loop are completed, where one is about to take one.

        Of the loops around the innermost, the item that they took last is not completed.
        """
        found = []
        for name in self.open:
            counts = self.counts[name]
            found.append(_completed(name, counts.taken - (name != self.open[-1]), counts.length))
        return ", ".join(found)

    def item_at_work(self) -> str:
        """Return the number of the item that each open loop took last, counted from 1."""
        return self._items(self.open)

    def failed_item(self) -> str:
        """Return the latest items, also where an error has left the loops."""
        return self._items(self._at_work)

    def _items(self, names: Sequence[str]) -> str:
        found = []
        for name in names:
            counts = self.counts[name]
            of = "" if counts.length is None else f" of {counts.length}"
            found.append(f"{name} {counts.taken}{of}")
        return ", ".join(found)

    def share(self) -> float:
        """Return which part of the outermost open loop is done, from 0 to 1."""
        share = 0.0
        for number, name in reversed(list(enumerate(self.open))):
            counts = self.counts[name]
            done = counts.taken - (number < len(self.open) - 1) + share
            length = counts.likely_length
            share = 0.0 if length is None else min(done / length, 1.0) if length else 1.0
        return min(share, 1.0)

    def _enter_again(
        self, name: str, counts: Counts, length_of: Callable[[int], int | None]
    ) -> int | None:
        depth, target = len(self.open), self._target or []
        nth = self._passed[name] = self._passed.get(name, 0) + 1
        if nth > counts.opens:
            raise IncompatibleState(
                f"the loop {name!r} was not entered before the checkpoint at {target}; "
                "the code took another way"
            )
        is_on_the_way = depth < len(target) and name == target[depth] and nth == counts.opens
        if not is_on_the_way:
            return None
        self.open.append(name)
        counts.length = length_of(counts.passes - 1)
        if counts.length is not None:
            counts.taken = min(counts.taken, counts.length)  # there may be more ranks now
        if self.open == target:
            return counts.taken
        counts.taken -= 1  # the item in whose iteration the place is
        counts.total -= 1
        return counts.taken

    def _begin_anew(self, name: str) -> None:
        for inner, counts in self.counts.items():
            if counts.parent == name:
                counts.opens = 0
                self._begin_anew(inner)


def _of_two_places(name: str, before: str, now: str) -> str:
    """Return what to do where a function that loops over it is called in several places."""
    places = (f"within {each!r}" if each else "outside of all loops" for each in (before, now))
    problem = f"the loop {name!r} is used in two places: {' and '.join(places)}"
    other = f'run.loader("{name}_2", dataset)'
    allowed = f"a loop with a name of its own for each, such as {other}, given to the function"
    return f"{problem}; its position is saved by its name; allowed: {allowed}"


def _completed(name: str, count: int, length: int | None) -> str:
    if name == "epoch":
        return completed(name, count, length)
    of = "" if length is None else f" of {length}"
    return f"{name}: {count}{of} done"
