"""What a waiting operation waits for: one answer, out of facts that were read. Pure.

Every question that a claim asks of a worker is asked here again, of all workers, one question
after the other; the one that none of them is left after is the answer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from apps.operations.lifecycle import Reason
from apps.operations.placement import GB, Need, ServingWorker
from trainops.serving import NUM_SEATS


class Wait(StrEnum):
    """A code for programs; what stands before SOON takes somebody's doing, or time."""

    PAUSED = "PAUSED"
    NO_WORKER = "NO_WORKER"
    NO_WORKER_FOR_KIND = "NO_WORKER_FOR_KIND"
    NO_WORKER_WITH_LABEL = "NO_WORKER_WITH_LABEL"
    NO_GPU = "NO_GPU"
    GPU_TOO_SMALL = "GPU_TOO_SMALL"
    MEMORY_TOO_SMALL = "MEMORY_TOO_SMALL"
    WORKERS_UNREACHABLE = "WORKERS_UNREACHABLE"
    WORKERS_DRAINING = "WORKERS_DRAINING"
    STORAGE_AWAY = "STORAGE_AWAY"
    DISK_SHORT = "DISK_SHORT"
    WORKERS_BUSY = "WORKERS_BUSY"
    SOON = "SOON"


@dataclass(frozen=True, slots=True)
class WaitingFor:
    code: Wait
    message: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """An operation that no worker has taken yet."""

    kind: str
    label: str = ""
    need: Need = field(default_factory=Need)
    paused_until: datetime | None = None
    reason: Reason = Reason.NONE  # why it is paused
    num_ahead: int | None = None  # due operations that go first; None: not counted


def waiting_for(
    waiting: Waiting, workers: Sequence[ServingWorker], *, moment: datetime
) -> WaitingFor:
    """Say what keeps the operation from being taken at `moment`."""
    if waiting.paused_until is not None and waiting.paused_until > moment:
        return WaitingFor(Wait.PAUSED, _paused(waiting))
    if not workers:
        return WaitingFor(Wait.NO_WORKER, "No worker is running: start one, and it takes this.")
    for question in QUESTIONS:
        left = [worker for worker in workers if question.admits(waiting, worker)]
        if not left:
            return WaitingFor(question.code, question.explain(waiting, workers))
        workers = left
    return WaitingFor(Wait.SOON, "A worker takes it in a moment.")


@dataclass(frozen=True, slots=True)
class Question:
    """One thing that a worker must be or have; `explain` is told the workers that are not."""

    code: Wait
    admits: Callable[[Waiting, ServingWorker], bool]
    explain: Callable[[Waiting, Sequence[ServingWorker]], str]


def _serves_kind(waiting: Waiting, worker: ServingWorker) -> bool:
    return not worker.kinds or waiting.kind in worker.kinds


def _has_label(waiting: Waiting, worker: ServingWorker) -> bool:
    return not waiting.label or waiting.label in worker.labels


def _has_gpu(waiting: Waiting, worker: ServingWorker) -> bool:
    return waiting.need.device != "cuda" or bool(worker.gpus)


def _has_gpu_memory(waiting: Waiting, worker: ServingWorker) -> bool:
    need = waiting.need
    return need.gpu_memory_bytes == 0 or need.choose(worker.gpus) is not None


def _has_memory(waiting: Waiting, worker: ServingWorker) -> bool:
    return worker.memory_bytes is None or worker.memory_bytes >= waiting.need.memory_bytes


def _has_disk(waiting: Waiting, worker: ServingWorker) -> bool:
    return worker.disk_bytes is None or worker.disk_bytes >= waiting.need.disk_bytes


def _is_free(waiting: Waiting, worker: ServingWorker) -> bool:
    if not _has_place(waiting, worker):
        return False
    if waiting.need.device == "cpu" or not worker.gpus or not waiting.need.takes_slot:
        return True
    free = (gpu for gpu in worker.gpus if gpu.id not in worker.held)
    return waiting.need.choose(free) is not None


def _has_place(waiting: Waiting, worker: ServingWorker) -> bool:
    if waiting.need.takes_slot:
        return worker.num_running < worker.slots
    return worker.num_seated < NUM_SEATS


def _paused(waiting: Waiting) -> str:
    why = f": {waiting.reason.label}" if waiting.reason else ""
    return f"It is paused until {waiting.paused_until:%H:%M:%S %Z} before it restarts{why}."


def _no_kind(waiting: Waiting, workers: Sequence[ServingWorker]) -> str:
    served = sorted({kind for worker in workers for kind in worker.kinds})
    return f"No worker serves the kind {waiting.kind}; served: {', '.join(served)}."


def _no_label(waiting: Waiting, workers: Sequence[ServingWorker]) -> str:
    served = sorted({label for worker in workers for label in worker.labels})
    others = f"; there are: {', '.join(served)}" if served else ""
    return f"No worker has the label {waiting.label}{others}."


def _no_gpu(waiting: Waiting, workers: Sequence[ServingWorker]) -> str:
    return "It needs a GPU, and no worker that may take it has one."


def _small_gpu(waiting: Waiting, workers: Sequence[ServingWorker]) -> str:
    largest = max(gpu.memory_bytes for worker in workers for gpu in worker.gpus)
    needed = _size(waiting.need.gpu_memory_bytes)
    return f"It needs a GPU with {needed}; the largest there is has {_size(largest)}."


def _small_memory(waiting: Waiting, workers: Sequence[ServingWorker]) -> str:
    largest = max(worker.memory_bytes or 0 for worker in workers)
    needed = _size(waiting.need.memory_bytes)
    return f"It needs a machine with {needed} of memory; the largest has {_size(largest)}."


def _unreachable(waiting: Waiting, workers: Sequence[ServingWorker]) -> str:
    return f"{_who(workers)} could take it, but {_does(workers, 'does', 'do')} not answer."


def _draining(waiting: Waiting, workers: Sequence[ServingWorker]) -> str:
    return f"{_who(workers)} could take it, but {_does(workers, 'is', 'are')} draining."


def _storage_away(waiting: Waiting, workers: Sequence[ServingWorker]) -> str:
    problem = next(worker.storage_problem for worker in workers if worker.storage_problem)
    return f"The storage of checkpoints cannot be used: {problem}"


def _no_disk(waiting: Waiting, workers: Sequence[ServingWorker]) -> str:
    most = max(workers, key=lambda worker: worker.disk_bytes or 0)
    return (
        f"The disk for checkpoints is short: {_size(most.disk_bytes or 0)} free on "
        f"{most.worker_id}, and two of its checkpoints take {_size(waiting.need.disk_bytes)}."
    )


def _busy(waiting: Waiting, workers: Sequence[ServingWorker]) -> str:
    slots = sum(worker.slots for worker in workers)
    if any(_has_place(waiting, worker) for worker in workers):
        busy = "every GPU that it could use is in use"
    elif not waiting.need.takes_slot:
        busy = f"each has {NUM_SEATS} operations already that wait for others"
    else:
        busy = "the only slot is busy" if slots == 1 else f"all {slots} slots are busy"
    return f"It waits for a free worker: {busy}{_place(waiting)}."


def _place(waiting: Waiting) -> str:
    match waiting.num_ahead:
        case None:
            return ""
        case 0:
            return "; it is the next"
        case 1:
            return ", one stands before it"
        case number:
            return f", {number:,} stand before it"


def _who(workers: Sequence[ServingWorker]) -> str:
    return workers[0].worker_id if len(workers) == 1 else f"{len(workers)} workers"


def _does(workers: Sequence[ServingWorker], one: str, many: str) -> str:
    return one if len(workers) == 1 else many


def _size(num_bytes: int) -> str:
    return f"{num_bytes / GB:.3g} GB"


QUESTIONS = (
    Question(Wait.NO_WORKER_FOR_KIND, _serves_kind, _no_kind),
    Question(Wait.NO_WORKER_WITH_LABEL, _has_label, _no_label),
    Question(Wait.NO_GPU, _has_gpu, _no_gpu),
    Question(Wait.GPU_TOO_SMALL, _has_gpu_memory, _small_gpu),
    Question(Wait.MEMORY_TOO_SMALL, _has_memory, _small_memory),
    Question(Wait.WORKERS_UNREACHABLE, lambda _, worker: worker.is_reachable, _unreachable),
    Question(Wait.WORKERS_DRAINING, lambda _, worker: not worker.is_draining, _draining),
    Question(Wait.STORAGE_AWAY, lambda _, worker: not worker.storage_problem, _storage_away),
    Question(Wait.DISK_SHORT, _has_disk, _no_disk),
    Question(Wait.WORKERS_BUSY, _is_free, _busy),
)
