"""Positions in an iterable dataset that worker processes read: the place of each of them."""

import pickle
from collections.abc import Mapping, Sequence
from typing import Any

from trainops.kinds.loop.stream_positions import StreamPosition, place_in
from trainops.kinds.loop.stream_reader import Delivered, Places, WorkerPlace
from trainops.runtime.errors import IncompatibleState


class WorkerPosition(StreamPosition):
    """The states of the datasets in worker processes, which send them with each batch.

    What they have read ahead is read again by a resume. As in torch, a pass begins with the
    dataset of the loop's process, or if the processes persist, with the state that each has.
    """

    def __init__(self, name: str, num_workers: int, *, persists: bool) -> None:
        self._name, self._persists = name, persists
        self._fresh = Places((WorkerPlace(),) * num_workers)
        self._now = self._before = self._read = self._fresh  # up to the batch that was read last
        self._has_taken = self._has_ended = False

    def takes(self, state: Mapping[str, Any]) -> bool:
        return state.get("workers") == len(self._fresh.workers)

    def begin(self, number: int, first: int) -> int:
        self.starts = None
        if (number, first + 1) == self._place:
            self.starts = self._before
        elif (number, first) == self._place:
            self.starts = self._now
        elif first:
            raise IncompatibleState(f"{self._name} is at {self._place}, not at {(number, first)}")
        else:
            begun = self._renewed() if self._persists else self._fresh
            if not self._has_ended:  # the processes are none, or have read too far
                self.starts = begun
            self._now = begun
        if self.starts is not None:
            self._now = self.starts
        self._read, self._place, self._has_ended = self._now, (number, first), False
        return 0

    def receive(self, delivered: Delivered) -> None:
        workers = list(self._read.workers)
        workers[delivered.worker] = delivered.place
        self._read = Places(tuple(workers), (delivered.worker + 1) % len(workers))

    def read(self) -> Places:
        return self._read

    def took(self, number: int, at: int, batch: Any, state: Places, is_over: bool) -> None:
        self._before, self._now, self._has_taken = self._now, state, True
        self._place = number, at + 1

    def end(self) -> None:
        self._now, self._has_ended = self._read, True

    def state_dict(self) -> dict[str, Any]:
        number, taken = self._place
        return {
            "pass": number, "taken": taken, "workers": len(self._now.workers),
            "now": _plain(self._now), "before": _plain(self._before),
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Have new processes continue from a state; not again where they do so on the way."""
        if self._has_taken:
            return
        self._place = place_in(self._name, state)
        try:
            self._now, self._before = _places(state["now"]), _places(state["before"])
        except (KeyError, TypeError, ValueError) as error:
            raise IncompatibleState(f"the places of {self._name} cannot be read") from error

    def _renewed(self) -> Places:
        return Places(tuple(WorkerPlace(each.state) for each in self._now.workers))


def _plain(places: Places) -> dict[str, Any]:
    found = [
        {
            "state": None if each.state is None else pickle.loads(each.state),  # noqa: S301 - of this run
            "batches": each.num_batches,
            "is_over": each.is_over,
        }
        for each in places.workers
    ]
    return {"turn": places.turn, "workers": found}


def _places(plain: Mapping[str, Any]) -> Places:
    workers: Sequence[Mapping[str, Any]] = plain["workers"]
    found = [
        WorkerPlace(
            None if each["state"] is None else pickle.dumps(each["state"]),
            int(each["batches"]),
            bool(each["is_over"]),
        )
        for each in workers
    ]
    return Places(tuple(found), int(plain["turn"]))
