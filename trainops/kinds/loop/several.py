"""One loop over the batches of several loaders."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from trainops.kinds.loop.batches import MapBatches, PassSource
from trainops.kinds.loop.schedules import LoaderSchedule
from trainops.kinds.loop.streams import StreamBatches
from trainops.runtime.errors import IncompatibleState


@dataclass
class PositionedLoader:
    """One loader, and its position: it has passes of its own."""

    source: PassSource
    number: int = -1  # of its pass
    taken: int = 0
    items: Iterator[Any] | None = field(default=None, repr=False)

    def begin_pass(self) -> None:
        self.number, self.taken, self.items = self.number + 1, 0, None

    def open(self) -> Iterator[Any]:
        if self.items is None:
            self.items = self.source.items(self.number, self.taken)
        return self.items

    def next(self) -> Any:
        """Return the next batch, of the next pass where this one is over."""
        for item in self.open():
            self.taken += 1
            return item
        self.begin_pass()
        item = next(self.open())  # a pass has at least one batch
        self.taken = 1
        return item


class SeveralLoaders:
    """The batches of several loaders by a schedule, each with the name of its loader.

    Where the length of a pass is a number, the loaders continue in the next one; otherwise they
    begin anew. The state is the position of the schedule and of each loader; one of another
    schedule is refused.
    """

    def __init__(
        self, schedule: LoaderSchedule, sources: Mapping[str, PassSource], seed: str
    ) -> None:
        self._schedule, self._seed = schedule, seed
        self._members = {name: PositionedLoader(source) for name, source in sources.items()}
        self._place = -1, 0  # the pass, and how many batches of it were taken

    @property
    def has_streams(self) -> bool:
        """Whether a loader has an iterable dataset."""
        return any(isinstance(each.source, StreamBatches) for each in self._members.values())

    def length(self, number: int) -> int:
        return self._schedule.num_items(self._seed_of(number))

    def fixed_length(self) -> None:
        return None

    def examples(self, number: int, limit: int | None) -> list[int]:
        sources = (each.source for each in self._members.values())
        drawn = (each.num_drawn() for each in sources if isinstance(each, MapBatches))
        return [each for each in drawn if each is not None]

    def items(self, number: int, first: int) -> Iterator[tuple[str, Any]]:
        """Return the batches from `first` on; loaders that stand within a pass are opened now."""
        names = islice(self._schedule.names(self._seed_of(number)), first, None)
        if (number, first + 1) == self._place:  # the newest batch once more
            newest = next(islice(self._schedule.names(self._seed_of(number)), first, None))
            self._members[newest].taken -= 1
        elif (number, first) != self._place:
            self._begin_pass()
        for member in self._members.values():
            if member.taken:
                member.open()
        self._place = number, first
        return self._rest(names)

    def close(self) -> None:
        """Let go of the opened passes of the loaders."""
        for member in self._members.values():
            member.items = None

    def state_dict(self) -> dict[str, Any]:
        number, taken = self._place
        loaders = {name: [each.number, each.taken] for name, each in self._members.items()}
        schedule = self._schedule.describe()
        return {"schedule": schedule, "pass": number, "taken": taken, "loaders": loaders}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        own, given = self._schedule.describe(), state.get("schedule")
        if own != given:
            problem = f"the loaders {self._schedule.name!r} had the schedule {given}"
            raise IncompatibleState(f"{problem}; now it is {own}")
        try:
            place = int(state["pass"]), int(state["taken"])
            loaders = {name: tuple(map(int, state["loaders"][name])) for name in self._members}
        except (KeyError, TypeError, ValueError) as error:
            problem = f"the position of {self._schedule.name!r} cannot be read"
            raise IncompatibleState(f"{problem}: {error!r}") from error
        self._place = place
        for name, member in self._members.items():
            member.number, member.taken = loaders[name]

    def _begin_pass(self) -> None:
        for member in self._members.values():
            if member.number < 0 or not isinstance(self._schedule.length, int):
                member.begin_pass()

    def _rest(self, names: Iterator[str]) -> Iterator[tuple[str, Any]]:
        for name in names:
            item = self._members[name].next()
            number, taken = self._place
            self._place = number, taken + 1
            yield name, item

    def _seed_of(self, number: int) -> str:
        return f"{self._seed}/pass {number}"
