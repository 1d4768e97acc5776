"""What this process holds right now: its slots, and the attempts it supervises."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from apps.operations.placement import Device
from trainops.engines.wire import now


@dataclass(slots=True)
class Held:
    """One attempt in this process; the house's threads write, its supervisor reads."""

    operation_id: str
    attempt: int
    device: str  # what CUDA_VISIBLE_DEVICES is for it; empty: no GPU
    renewed_at: float  # boot clock, from before the claim or the last renewal was sent
    stop: str = ""  # Operation.Stop
    must_be_gone_at: float | None = None  # boot clock: the worker is going
    is_lost: bool = False  # the database said that another owns it, or none
    child_seconds: float = 0.0


@dataclass(slots=True, eq=False)
class Slot:
    """Room for one operation, with the GPU that it holds meanwhile."""

    device: Device | None = None


@dataclass(slots=True)
class Holding:
    """The slots of a worker: one operation in each, and at most one to a GPU."""

    slots: int = 1
    devices: tuple[Device, ...] = ()
    gone_at: float | None = None  # boot clock; set when it is closed
    is_draining: bool = False  # a person asked: what runs goes on, nothing new is taken
    _held: dict[tuple[str, int], Held] = field(default_factory=dict)
    # One claim at a time: the GPU that it is promised must not be promised to the next one, too.
    claiming: threading.Lock = field(default_factory=threading.Lock)
    _taken: list[Slot] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def slot(self) -> Iterator[Slot | None]:
        """Take a free slot, or yield None when all are taken."""
        slot = self._take()
        try:
            yield slot
        finally:
            if slot is not None:
                with self._lock:
                    self._taken.remove(slot)

    def _take(self) -> Slot | None:
        with self._lock:
            if not self._is_open or len(self._taken) >= self.slots:
                return None
            slot = Slot()
            self._taken.append(slot)
            return slot

    @property
    def free_devices(self) -> tuple[Device, ...]:
        with self._lock:
            held = [slot.device for slot in self._taken]
        return tuple(device for device in self.devices if device not in held)

    @property
    def num_free(self) -> int:
        with self._lock:
            return self.slots - len(self._taken) if self._is_open else 0

    @property
    def _is_open(self) -> bool:
        return self.gone_at is None and not self.is_draining

    @contextmanager
    def hold(self, held: Held) -> Iterator[Held]:
        key = (held.operation_id, held.attempt)
        with self._lock:
            held.must_be_gone_at = self.gone_at  # claimed while the house was closing
            self._held[key] = held
        try:
            yield held
        finally:
            with self._lock:
                del self._held[key]

    def all(self) -> list[Held]:
        with self._lock:
            return list(self._held.values())

    def close(self, *, gone_in_seconds: float) -> None:
        """Take nothing new, and have everything saved and gone by then."""
        with self._lock:
            self.gone_at = now() + gone_in_seconds
            for held in self._held.values():
                held.must_be_gone_at = self.gone_at


# A worker process has one holding; `apps.workers.house` says how many slots and devices.
HOLDING = Holding(slots=0)
