"""What this process holds right now: the attempts it supervises, in its slots and seats."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from apps.operations.placement import Device, Room
from trainops.process.protocol import now
from trainops.serving import NUM_SEATS


@dataclass(slots=True)
class Held:
    """One attempt in this process; the house's threads write, its supervisor reads."""

    operation_id: str
    attempt: int
    device: str  # what CUDA_VISIBLE_DEVICES is for it; empty: no GPU
    renewed_at: float  # boot clock, from before the claim or the last renewal was sent
    takes_slot: bool = True
    stop: str = ""  # Operation.Stop
    must_be_gone_at: float | None = None  # boot clock: the worker is going
    is_to_leave: bool = False  # it only waits for others here, and may do so elsewhere
    is_lost: bool = False  # the database said that another owns it, or none
    child_seconds: float = 0.0


@dataclass(slots=True)
class Holding:
    """The slots of a worker: one operation in each, and at most one to a GPU; and its seats."""

    slots: int = 1
    devices: tuple[Device, ...] = ()
    gone_at: float | None = None  # boot clock; set when it is closed
    is_draining: bool = False  # a person asked; see `drain`
    _held: dict[tuple[str, int], Held] = field(default_factory=dict)
    # One claim at a time, until it is held: the slot and the GPU that it is promised must not be
    # promised to the next one, too.
    claiming: threading.Lock = field(default_factory=threading.Lock)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def num_taken(self) -> int:
        """The slots that are taken."""
        return sum(each.takes_slot for each in self.all())

    @property
    def rooms(self) -> tuple[Room, ...]:
        """What is free. A GPU is held by one operation in a slot; those in seats share them."""
        if self.gone_at is not None or self.is_draining:
            return ()
        everyone = self.all()
        in_slots = [each for each in everyone if each.takes_slot]
        held = {each.device for each in in_slots}
        free = tuple(each for each in self.devices if each.id not in held)
        slot = Room(devices=free, has_gpus=bool(self.devices))
        seat = replace(slot, is_slot=False, devices=self.devices)
        has_seat = len(everyone) - len(in_slots) < NUM_SEATS
        return (*([slot] if len(in_slots) < self.slots else []), *([seat] if has_seat else []))

    @contextmanager
    def hold(self, held: Held) -> Iterator[Held]:
        key = (held.operation_id, held.attempt)
        with self._lock:
            held.must_be_gone_at = self.gone_at  # claimed while the house was closing
            held.is_to_leave = self.is_draining and not held.takes_slot
            self._held[key] = held
        try:
            yield held
        finally:
            with self._lock:
                del self._held[key]

    def all(self) -> list[Held]:
        with self._lock:
            return list(self._held.values())

    def drain(self, is_draining: bool) -> None:
        """Take nothing new, or again.

        What runs goes on. Who waits for others leaves, and waits elsewhere: nobody here would do
        what it waits for, and so it would never end.
        """
        with self._lock:
            self.is_draining = is_draining
            for held in self._held.values():
                held.is_to_leave = is_draining and not held.takes_slot

    def close(self, *, gone_in_seconds: float) -> None:
        """Take nothing new, and have everything saved and gone by then."""
        with self._lock:
            self.gone_at = now() + gone_in_seconds
            for held in self._held.values():
                held.must_be_gone_at = self.gone_at


# A worker process has one holding; `apps.workers.house` says how many slots and devices.
HOLDING = Holding(slots=0)
