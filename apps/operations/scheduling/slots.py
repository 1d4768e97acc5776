"""The slots of this worker process, and the attempts that run in them."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from apps.operations.lifecycle import Handback
from apps.operations.placement import Device, FreeSlot
from trainops.process.protocol import now
from trainops.serving import NUM_WAIT_SLOTS


@dataclass(slots=True)
class RunningAttempt:
    """One attempt in this process; the worker's background loops write, its supervisor reads."""

    operation_id: str
    attempt: int
    device: str  # what CUDA_VISIBLE_DEVICES is for it, one for each process; empty: no GPU
    renewed_at: float  # boot clock, from before the claim or the last renewal was sent
    takes_slot: bool = True
    processes: int = 1  # each in a slot
    node: int | None = None  # its Node row, where another worker leads the attempt
    stop: str = ""  # Operation.Stop
    must_be_gone_at: float | None = None  # boot clock: the worker is going
    is_to_leave: bool = False  # it only waits for others here, and may do so elsewhere
    handback: Handback | None = None  # what the platform asked for
    is_lost: bool = False  # the database said that another owns it, or none
    child_seconds: float = 0.0

    @property
    def is_unwanted(self) -> bool:
        """Whether this worker is to have it no longer."""
        return self.must_be_gone_at is not None or self.is_to_leave


@dataclass(slots=True)
class Slots:
    """A worker's slots, one process in each and at most one per GPU, and its wait slots."""

    count: int = 1
    devices: tuple[Device, ...] = ()
    gone_at: float | None = None  # boot clock; set when it is closed
    is_draining: bool = False  # a person asked; see `drain`
    _held: dict[tuple[str, int], RunningAttempt] = field(default_factory=dict)
    # One claim at a time, until it holds its slot: a slot and a GPU must not be
    # promised twice.
    claiming: threading.Lock = field(default_factory=threading.Lock)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def num_taken(self) -> int:
        """The slots that are taken."""
        return sum(each.processes for each in self.all() if each.takes_slot)

    @property
    def is_in_use(self) -> bool:
        """Whether an attempt runs, or an operation is being claimed, which holds no slot yet."""
        return self.claiming.locked() or bool(self.all())

    @property
    def free_slots(self) -> tuple[FreeSlot, ...]:
        """What is free. One operation in a slot holds a GPU; wait slots share all of them."""
        if self.gone_at is not None or self.is_draining:
            return ()
        everyone = self.all()
        in_slots = [each for each in everyone if each.takes_slot]
        num_free = self.count - sum(each.processes for each in in_slots)
        held = {device for each in in_slots for device in each.device.split(",")}
        free = tuple(each for each in self.devices if each.id not in held)
        slots = FreeSlot(devices=free, has_gpus=bool(self.devices), num_slots=num_free)
        wait_slot = FreeSlot(False, self.devices, has_gpus=bool(self.devices))
        has_wait_slot = len(everyone) - len(in_slots) < NUM_WAIT_SLOTS
        return (
            *([slots] if num_free > 0 else []),
            *([wait_slot] if has_wait_slot else []),
        )

    def has_room(self, processes: int, devices: Iterable[str]) -> bool:
        """Whether slots and GPUs that another worker has claimed are free here already."""
        in_slots = (each for each in self.all() if each.takes_slot)
        held = {device for each in in_slots for device in each.device.split(",")}
        return self.num_taken + processes <= self.count and held.isdisjoint(devices)

    @property
    def all_slots(self) -> FreeSlot:
        """What is free when nothing runs."""
        return FreeSlot(devices=self.devices, has_gpus=bool(self.devices), num_slots=self.count)

    @contextmanager
    def hold(self, held: RunningAttempt) -> Iterator[RunningAttempt]:
        key = (held.operation_id, held.attempt)
        with self._lock:
            held.must_be_gone_at = self.gone_at  # claimed while the worker was closing
            held.is_to_leave = self.is_draining and not held.takes_slot
            self._held[key] = held
        try:
            yield held
        finally:
            with self._lock:
                del self._held[key]

    def all(self) -> list[RunningAttempt]:
        with self._lock:
            return list(self._held.values())

    def drain(self, is_draining: bool) -> None:
        """Take nothing new, or again.

        Running attempts continue. Coordinators move to another worker: this one accepts no new
        subtasks, so waiting here could deadlock.
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


# One per worker process; `apps.workers.runtime` sets the number of slots and the devices.
SLOTS = Slots(count=0)
