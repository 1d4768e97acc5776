"""What an operation needs, what a worker offers, and what fits. Pure."""

from collections.abc import Collection, Iterable, Sequence
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
    takes_slot: bool = True  # else a seat: others do its work

    @property
    def disk_bytes(self) -> int:
        """Free disk for two checkpoints: the next is written before an older one goes."""
        return 2 * self.checkpoint_bytes

    def choose(self, devices: Iterable[Device]) -> Device | None:
        """Return the smallest GPU that suffices; None where it may not use one, or none does."""
        if self.device == "cpu":
            return None
        enough = (each for each in devices if each.memory_bytes >= self.gpu_memory_bytes)
        return min(enough, key=lambda each: each.memory_bytes, default=None)


@dataclass(frozen=True, slots=True)
class Room:
    """A free place of a worker, a slot or a seat, and the GPUs that whoever takes it may use."""

    is_slot: bool = True
    devices: Collection[Device] = ()
    has_gpus: bool = False  # be they free or not

    @property
    def gpu_memory_bytes(self) -> int:
        return max((each.memory_bytes for each in self.devices), default=0)

    @property
    def possible_devices(self) -> tuple[str, ...]:
        """Return the `device`s that can be had.

        Beside a busy GPU nothing that would use one is started on the CPU instead: what was to
        take minutes would take hours, and end with other last bits.
        """
        if self.devices:
            return ("auto", "cpu", "cuda")
        return ("cpu",) if self.has_gpus else ("auto", "cpu")


@dataclass(frozen=True, slots=True)
class Offer:
    """What one worker can give to the next operation, at this moment."""

    kinds: Collection[str]
    labels: Collection[str] = ()  # besides these: whoever asks for none
    memory_bytes: int = 0
    disk_bytes: int = 0  # free, where checkpoints are written
    rooms: Sequence[Room] = (Room(),)
    takes_parts: bool = True  # clients of a distributed operation, which need a shared storage

    def choose(self, need: Need) -> Device | None:
        """Return the GPU that an operation gets, if it gets one."""
        devices = (each.devices for each in self.rooms if each.is_slot == need.takes_slot)
        return need.choose(next(devices, ()))


@dataclass(frozen=True, slots=True)
class ServingWorker:
    """A worker as it last described itself, and what it runs."""

    worker_id: str
    kinds: Sequence[str] = ()  # none: every kind
    labels: Sequence[str] = ()
    slots: int = 1
    num_running: int = 0  # in slots
    num_seated: int = 0
    is_reachable: bool = True
    is_draining: bool = False
    gpus: Sequence[Device] = ()
    held: frozenset[str] = frozenset()  # ids of the GPUs in use
    memory_bytes: int | None = None  # None: it did not say, here and below
    disk_bytes: int | None = None
    storage_problem: str = ""  # why it can neither read nor write checkpoints


def need_of(config: OperationConfig) -> Need:
    """Return what a config asks for; whoever asks for a GPU's memory asks for a GPU."""
    wanted = config.resources
    return Need(
        device="cuda" if wanted.gpu_memory_gb is not None else config.device,
        gpu_memory_bytes=_bytes(wanted.gpu_memory_gb),
        memory_bytes=_bytes(wanted.memory_gb),
        takes_slot=not config.is_distributed,
    )


def _bytes(gigabytes: float | None) -> int:
    return round((gigabytes or 0) * GB)
