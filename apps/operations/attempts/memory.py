"""How much memory an attempt used, and which fields to change when it was too much."""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import psutil

from apps.operations.attempts.outcomes import AttemptOutcome, Interrupted
from apps.operations.lifecycle import Reason, ReportedError
from trainops.process.failure_messages import GPU_MEMORY, gigabytes
from trainops.process.process_use import processes_of

SAMPLE_SECONDS = 0.25
DESCENDANTS_SECONDS = 1.0  # between searches for new ones, which read /proc
CONTAINER = Path("/sys/fs/cgroup")
INACTIVE_FILE = re.compile(r"^inactive_file (\d+)$", re.MULTILINE)  # cache that can be freed
ACCUMULATION = frozenset(
    {"accumulate_grad_batches", "accumulation", "gradient_accumulation",
     "gradient_accumulation_steps"}
)  # fmt: skip
BATCHES = frozenset({"batch_size", "per_device_train_batch_size"})
HALVED = frozenset({"num_workers", "prefetch", "prefetch_factor", "capacity"})  # and are no 0
SWITCHED_ON = frozenset({"activation_checkpointing", "gradient_checkpointing"})
SWITCHED_OFF = frozenset({"batched_clients"})
LOWER_PRECISION = {"fp32": "bf16", "32-true": "bf16-mixed"}


class GivenField(NamedTuple):
    """A field of a config that has a value."""

    path: str
    name: str
    value: object


@dataclass(slots=True)
class MemoryUse:
    """Samples of an attempt's processes and of its machine, in bytes; 0 where nothing was read.

    The supervisor takes them, because a process that the kernel kills cannot report its peak. The
    processes are that of rank 0 and its descendants: other ranks of this node, workers of loaders.
    """

    pid: int
    peak: int = 0  # resident, of the largest process
    total: int = 0  # of the machine, or of the container if that has less
    free: int = 0  # the least that was free
    _next: float = 0.0
    _pids: Sequence[int] = ()
    _next_search: float = 0.0

    def sample(self) -> None:
        """Read the figures, at most every 0.25 s."""
        at = time.monotonic()
        if at < self._next:
            return
        self._next = at + SAMPLE_SECONDS
        if at >= self._next_search:
            self._next_search = at + DESCENDANTS_SECONDS
            self._pids = [each.pid for each in processes_of(self.pid)]
        self.peak = max([self.peak, *map(_peak_of, self._pids)])
        self.total, free = machine_memory()
        self.free = min(self.free or free, free)

    def __str__(self) -> str:
        what = "peak resident memory of its largest process"
        peak = f"{what} {gigabytes(self.peak)}, " if self.peak else ""
        return f"{peak}least free {gigabytes(self.free)} of {gigabytes(self.total)}"


def machine_memory() -> tuple[int, int]:
    """Return the memory of the machine, total and free; of the container if that has less."""
    memory = psutil.virtual_memory()
    with suppress(OSError, ValueError):
        limit = int((CONTAINER / "memory.max").read_text())
        used = int((CONTAINER / "memory.current").read_text())
        counters = INACTIVE_FILE.search((CONTAINER / "memory.stat").read_text())
        cached = int(counters[1]) if counters else 0
        if limit < memory.total:
            return limit, min(memory.available, max(0, limit - used + cached))
    return memory.total, memory.available


def explained(
    outcome: AttemptOutcome, use: MemoryUse, config: Mapping[str, object]
) -> AttemptOutcome:
    """Return the outcome; one of OUT_OF_MEMORY with the figures and what to try."""
    if not isinstance(outcome, Interrupted) or outcome.reason is not Reason.OUT_OF_MEMORY:
        return outcome
    figures = f"{use}; " if use.total else ""
    is_gpu = GPU_MEMORY in outcome.note
    note = f"{outcome.note} ({figures}to try: {', '.join(remedies(config, use, is_gpu=is_gpu))})"
    error = outcome.error or ReportedError(code=str(outcome.reason), message="", traceback="")
    return replace(outcome, note=note, error={**error, "message": note})


def remedies(config: Mapping[str, object], use: MemoryUse, *, is_gpu: bool) -> list[str]:
    """Return what would need less memory, by the fields that the config has."""
    fields = list(_fields(config))
    found = [*_smaller_batches(fields), *_changed(fields)]
    if is_gpu:
        return [*found, "resources.gpu_memory_gb for a larger GPU"]
    size = f" above {use.total / 1e9:.3g}" if use.total else ""
    return [*found, f"resources.memory_gb{size} for a larger machine"]


def _smaller_batches(fields: list[GivenField]) -> Iterator[str]:
    has_batches = False
    for path, name, size in fields:
        if name in BATCHES and isinstance(size, int) and size > 1:
            has_batches = True
            yield f"{path} {size // 2} instead of {size}"
    for path, name, number in fields:
        if has_batches and name in ACCUMULATION and isinstance(number, int):
            yield f"{path} {2 * number} with it, for as many examples per update"


def _changed(fields: list[GivenField]) -> Iterator[str]:
    for path, name, value in fields:
        if name in HALVED and type(value) is int and value > 0:
            yield f"{path} {value // 2} instead of {value}"
        elif name in SWITCHED_ON and value is False:
            yield f"{path} true"
        elif name in SWITCHED_OFF and value is True:
            yield f"{path} false"
        elif name == "precision" and isinstance(value, str) and value in LOWER_PRECISION:
            yield f"{path} {LOWER_PRECISION[value]} instead of {value}"


def _fields(config: Mapping[str, object], prefix: str = "") -> Iterator[GivenField]:
    """Yield the path, the name and the value of each field, without those that are not given."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _fields(value, f"{prefix}{name}.")
        elif value is not None:
            yield GivenField(f"{prefix}{name}", name, value)


def _peak_of(pid: int) -> int:
    with suppress(OSError):
        if found := re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text()):
            return int(found[1]) * 1024
    return 0
