"""What an operation needs, what a worker offers, and what fits. Pure."""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from trainops.runtime.config import OperationConfig

GB = 10**9


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU, by the name that CUDA_VISIBLE_DEVICES takes."""

    id: str
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Need:
    """What an operation asks of the worker that takes it; each field is a column of its row."""

    device: str = "auto"  # auto, cpu, cuda
    gpu_memory_bytes: int = 0
    memory_bytes: int = 0  # of the whole machine
    checkpoint_bytes: int = 0  # its last one's size
    takes_slot: bool = True  # False: it takes a wait slot, its subtasks do the work
    processes: int = 1  # of each worker; each takes a slot, and a GPU if it uses one
    nodes: int = 1  # workers that compute it at once, at most and at least
    min_nodes: int = 1
    first_checkpoint_seconds: int | None = None  # expected after a claim; None: unknown
    uses_datasets: bool = False

    def is_saved_within(self, seconds: float | None) -> bool:
        """Whether its first checkpoint is expected before a worker's time ends; None: no end."""
        return seconds is None or (self.first_checkpoint_seconds or 0) <= seconds

    @property
    def disk_bytes(self) -> int:
        """Free disk for two checkpoints: the next is written before an older one goes."""
        return 2 * self.checkpoint_bytes

    def choose(self, devices: Iterable[Device]) -> tuple[Device, ...]:
        """Return the smallest GPUs that suffice, one for each process.

        Empty where it may not use any, or where there are too few.
        """
        if self.device == "cpu":
            return ()
        enough = [each for each in devices if each.memory_bytes >= self.gpu_memory_bytes]
        smallest = sorted(enough, key=lambda each: each.memory_bytes)[: self.processes]
        return tuple(smallest) if len(smallest) == self.processes else ()


@dataclass(frozen=True, slots=True)
class Limit:
    """What an operation may ask for at most: processes, one of these devices, GPU memory."""

    processes: int
    devices: tuple[str, ...]
    gpu_memory_bytes: int = 0

    def allows(self, need: Need) -> bool:
        return (
            need.processes <= self.processes
            and need.device in self.devices
            and need.gpu_memory_bytes <= self.gpu_memory_bytes
        )


@dataclass(frozen=True, slots=True)
class FreeSlot:
    """Free slots or a wait slot of a worker, and the GPUs that may be used in them."""

    is_slot: bool = True
    devices: Collection[Device] = ()
    has_gpus: bool = False  # be they free or not
    num_slots: int = 1

    @property
    def limits(self) -> Iterator[Limit]:
        """Yield limits; an operation fits that one of them allows.

        Beside a busy GPU nothing that would use one is started on the CPU instead: what was to
        take minutes would take hours, and end with other last bits.
        """
        yield Limit(self.num_slots, ("cpu",) if self.has_gpus else ("auto", "cpu"))
        sizes = sorted((each.memory_bytes for each in self.devices), reverse=True)
        for number, size in enumerate(sizes[: self.num_slots], start=1):
            yield Limit(number, ("auto", "cpu", "cuda"), size)


@dataclass(frozen=True, slots=True)
class Offer:
    """What one worker can give to the next operation, at this moment."""

    kinds: Collection[str]
    labels: Collection[str] = ()  # besides these: operations that ask for none
    memory_bytes: int = 0
    disk_bytes: int = 0  # free, where checkpoints are written
    free_slots: Sequence[FreeSlot] = (FreeSlot(),)
    takes_subtasks: bool = True  # which need the shared storage
    has_datasets: bool = True  # whether the storage of datasets can be read
    all_slots: FreeSlot | None = None  # free when nothing runs; None: nothing is reserved
    seconds_left: float | None = None  # for a first checkpoint; None: the worker has no end
    is_node: bool = False  # whether it may compute together with other workers

    def allows(self, need: Need) -> bool:
        """Whether slots and GPUs suffice for an operation."""
        free = (each for each in self.free_slots if each.is_slot == need.takes_slot)
        return any(limit.allows(need) for each in free for limit in each.limits)

    def choose(self, need: Need) -> tuple[Device, ...]:
        """Return the GPUs that an operation gets, if it gets any."""
        devices = (each.devices for each in self.free_slots if each.is_slot == need.takes_slot)
        return need.choose(next(devices, ()))


@dataclass(frozen=True, slots=True)
class ServingWorker:
    """A worker as it last described itself, and what it runs."""

    worker_id: str
    kinds: Sequence[str] = ()  # none: every kind
    labels: Sequence[str] = ()
    slots: int = 1
    num_running: int = 0  # slots that are taken
    max_processes: int = 1  # of one operation
    is_node: bool = False  # whether it may compute together with other workers
    versions: tuple[str, ...] = ()  # of trainops and torch: equal on workers that do
    num_waiting_slots: int = 0
    is_reachable: bool = True
    is_draining: bool = False
    gpus: Sequence[Device] = ()
    held: frozenset[str] = frozenset()  # ids of the GPUs in use
    memory_bytes: int | None = None  # None: it did not say, here and below
    disk_bytes: int | None = None
    storage_problem: str = ""  # why it can neither read nor write checkpoints
    dataset_problem: str = ""  # why it cannot read datasets
    seconds_left: float | None = None  # for the first checkpoint of a new one; None: no end

    @property
    def free_gpus(self) -> list[Device]:
        return [each for each in self.gpus if each.id not in self.held]


def need_of(config: OperationConfig) -> Need:
    """Return what a config asks for; asking for GPU memory implies a GPU."""
    wanted = config.resources
    return Need(
        device="cuda" if wanted.gpu_memory_gb is not None else config.device,
        gpu_memory_bytes=_bytes(wanted.gpu_memory_gb),
        memory_bytes=_bytes(wanted.memory_gb),
        takes_slot=not config.is_distributed,
        processes=config.num_processes,
        nodes=config.num_nodes.largest,
        min_nodes=config.num_nodes.smallest,
        first_checkpoint_seconds=math.ceil(config.checkpoint.every_seconds),
        uses_datasets=bool(config.dataset_ids()),
    )


def _bytes(gigabytes: float | None) -> int:
    return round((gigabytes or 0) * GB)
