"""The reason why a waiting operation is not started yet. Pure.

Applies the conditions of a claim to all workers, one after the other; the first condition that no
worker meets is the reason.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from apps.operations.lifecycle import reason_label
from apps.operations.placement import GB, Need, ServingWorker
from apps.operations.sharing import Allowance, first_exceeded
from trainops.serving import NUM_WAIT_SLOTS


class BlockingReason(StrEnum):
    """A code for programs. Every code before SOON needs a person, or time."""

    PAUSED = "PAUSED"
    NO_WORKER = "NO_WORKER"
    NO_WORKER_FOR_KIND = "NO_WORKER_FOR_KIND"
    NO_WORKER_WITH_LABEL = "NO_WORKER_WITH_LABEL"
    TOO_FEW_WORKERS = "TOO_FEW_WORKERS"
    TOO_FEW_SLOTS = "TOO_FEW_SLOTS"
    NO_GPU = "NO_GPU"
    GPU_TOO_SMALL = "GPU_TOO_SMALL"
    MEMORY_TOO_SMALL = "MEMORY_TOO_SMALL"
    WORKERS_UNREACHABLE = "WORKERS_UNREACHABLE"
    WORKERS_DRAINING = "WORKERS_DRAINING"
    WORKERS_ENDING = "WORKERS_ENDING"
    STORAGE_AWAY = "STORAGE_AWAY"
    DATASETS_AWAY = "DATASETS_AWAY"
    DISK_SHORT = "DISK_SHORT"
    SHARE_TOO_SMALL = "SHARE_TOO_SMALL"
    BUDGET_USED_UP = "BUDGET_USED_UP"
    SHARE_USED_UP = "SHARE_USED_UP"
    WORKERS_BUSY = "WORKERS_BUSY"
    SOON = "SOON"


OF_SHARES = frozenset(
    {
        BlockingReason.SHARE_TOO_SMALL,
        BlockingReason.BUDGET_USED_UP,
        BlockingReason.SHARE_USED_UP,
    }
)
NOT_OF_WORKERS = OF_SHARES | {BlockingReason.WORKERS_BUSY}


@dataclass(frozen=True, slots=True)
class QueueStatus:
    code: BlockingReason
    message: str


@dataclass(frozen=True, slots=True)
class WaitingOperation:
    """An operation that no worker has taken yet."""

    kind: str
    label: str = ""
    need: Need = field(default_factory=Need)
    paused_until: datetime | None = None
    reason: str = ""  # why it is paused
    allowances: Sequence[Allowance] = ()  # of its owner and project
    num_ahead: int | None = None  # due operations that go first; None: not counted


def queue_status_of(
    waiting: WaitingOperation, workers: Sequence[ServingWorker], *, moment: datetime
) -> QueueStatus:
    """Say what keeps the operation from being taken at `moment`."""
    if waiting.paused_until is not None and waiting.paused_until > moment:
        return QueueStatus(BlockingReason.PAUSED, _paused(waiting))
    if not workers:
        return QueueStatus(
            BlockingReason.NO_WORKER, "No worker is running. Start one to run this operation."
        )
    for question in QUESTIONS:
        left = [worker for worker in workers if question.admits(waiting, worker)]
        if len(left) < waiting.need.min_nodes:
            return _status(question, waiting, workers, left)
        workers = left
    if len(same := alike(waiting, workers)) < waiting.need.min_nodes:
        message = f"Needs {waiting.need.min_nodes} workers {_how_alike(same, workers)}"
        return QueueStatus(BlockingReason.TOO_FEW_WORKERS, f"{message}; {_do(same)}.")
    return QueueStatus(BlockingReason.SOON, "A worker claims it shortly.")


def able(waiting: WaitingOperation, workers: Sequence[ServingWorker]) -> list[ServingWorker]:
    """Return the workers that could take the operation, if they are busy or not.

    Whatever its owner and project use.
    """
    of_workers = [one for one in QUESTIONS if one.code not in NOT_OF_WORKERS]
    return [each for each in workers if all(one.admits(waiting, each) for one in of_workers)]


def free(waiting: WaitingOperation, workers: Iterable[ServingWorker]) -> list[ServingWorker]:
    """Return those of the able workers that are not busy."""
    return [each for each in workers if _is_free(waiting, each)]


@dataclass(frozen=True, slots=True)
class Question:
    """One thing that a worker must be or have; `explain` gets the workers that do not.

    several: what workers that compute together must, after "workers that".
    """

    code: BlockingReason
    admits: Callable[[WaitingOperation, ServingWorker], bool]
    explain: Callable[[WaitingOperation, Sequence[ServingWorker]], str]
    several: Callable[[WaitingOperation], str]


def _status(
    question: Question,
    waiting: WaitingOperation,
    workers: Sequence[ServingWorker],
    left: Sequence[ServingWorker],
) -> QueueStatus:
    """Return the status where too few workers are left after a question, or none."""
    needed, is_busy = waiting.need.min_nodes, question.code is BlockingReason.WORKERS_BUSY
    is_of_shares = question.code in OF_SHARES
    if needed == 1 or is_of_shares or not (left or is_busy):
        return QueueStatus(question.code, question.explain(waiting, workers))
    message = f"Needs {needed} workers that {question.several(waiting)}; {_do(left)}."
    return QueueStatus(question.code if is_busy else BlockingReason.TOO_FEW_WORKERS, message)


def are_alike(need: Need, one: ServingWorker, other: ServingWorker) -> bool:
    """Whether two workers may compute together: both use GPUs or none, with equal versions."""
    use_alike = need.device == "cpu" or bool(one.gpus) == bool(other.gpus)
    return use_alike and one.versions == other.versions


def alike(waiting: WaitingOperation, workers: Sequence[ServingWorker]) -> Sequence[ServingWorker]:
    """Return the most workers that may compute together."""
    if waiting.need.nodes == 1:
        return workers
    groups = ([each for each in workers if are_alike(waiting.need, each, one)] for one in workers)
    return max(groups, key=len, default=())


def _how_alike(same: Sequence[ServingWorker], workers: Sequence[ServingWorker]) -> str:
    """Say what the largest group of workers has in common, and the others do not."""
    if all(each.versions == same[0].versions for each in workers):
        return "that all have GPUs, or all have none"
    found = sorted({", ".join(each.versions) or "unknown versions" for each in workers})
    return f"with the same versions ({'; '.join(found)})"


def _do(workers: Sequence[ServingWorker]) -> str:
    return "1 does" if len(workers) == 1 else f"{len(workers)} do"


def _serves_kind(waiting: WaitingOperation, worker: ServingWorker) -> bool:
    return not worker.kinds or waiting.kind in worker.kinds


def _has_label(waiting: WaitingOperation, worker: ServingWorker) -> bool:
    return not waiting.label or waiting.label in worker.labels


def _has_gpu(waiting: WaitingOperation, worker: ServingWorker) -> bool:
    if waiting.need.device == "cpu" or (waiting.need.device == "auto" and not worker.gpus):
        return True
    return len(worker.gpus) >= waiting.need.processes


def _has_slots(waiting: WaitingOperation, worker: ServingWorker) -> bool:
    is_possible = worker.is_node or waiting.need.nodes == 1
    return is_possible and waiting.need.processes <= worker.max_processes


def _has_gpu_memory(waiting: WaitingOperation, worker: ServingWorker) -> bool:
    need = waiting.need
    return need.gpu_memory_bytes == 0 or bool(need.choose(worker.gpus))


def _has_memory(waiting: WaitingOperation, worker: ServingWorker) -> bool:
    return worker.memory_bytes is None or worker.memory_bytes >= waiting.need.memory_bytes


def _has_disk(waiting: WaitingOperation, worker: ServingWorker) -> bool:
    return worker.disk_bytes is None or worker.disk_bytes >= waiting.need.disk_bytes


def _on_gpus(waiting: WaitingOperation, worker: ServingWorker) -> bool:
    return waiting.need.device != "cpu" and bool(worker.gpus)


def _exceeded(
    waiting: WaitingOperation, worker: ServingWorker, allowances: Sequence[Allowance]
) -> str:
    """Say which of them do not allow the operation on a worker, and why; "" if all do."""
    on_gpus = _on_gpus(waiting, worker)
    exceeded = first_exceeded(allowances, waiting.need, on_gpus=on_gpus)
    return exceeded.explain(waiting.need, on_gpus=on_gpus) if exceeded else ""


def _budget_problem(waiting: WaitingOperation) -> str:
    """Say which budget is used up for the operation; "": none."""
    if not waiting.need.takes_slot:
        return ""
    on_gpus = waiting.need.device != "cpu"
    problems = (each.budget_problem(on_gpus=on_gpus) for each in waiting.allowances)
    return next(filter(None, problems), "")


def _has_budget(waiting: WaitingOperation, _: ServingWorker) -> bool:
    return not _budget_problem(waiting)


def _unused(waiting: WaitingOperation) -> list[Allowance]:
    return [each.unused for each in waiting.allowances]


def _can_be_allowed(waiting: WaitingOperation, worker: ServingWorker) -> bool:
    return not _exceeded(waiting, worker, _unused(waiting))


def _is_allowed(waiting: WaitingOperation, worker: ServingWorker) -> bool:
    return not _exceeded(waiting, worker, waiting.allowances)


def _is_free(waiting: WaitingOperation, worker: ServingWorker) -> bool:
    if not _has_place(waiting, worker):
        return False
    if waiting.need.device == "cpu" or not worker.gpus or not waiting.need.takes_slot:
        return True
    return bool(waiting.need.choose(worker.free_gpus))


def _has_place(waiting: WaitingOperation, worker: ServingWorker) -> bool:
    if waiting.need.takes_slot:
        return worker.num_running + waiting.need.processes <= worker.slots
    return worker.num_waiting_slots < NUM_WAIT_SLOTS


def _paused(waiting: WaitingOperation) -> str:
    why = f" ({reason_label(waiting.reason)})" if waiting.reason else ""
    return f"Restarts at {waiting.paused_until:%H:%M:%S %Z}{why}."


def _no_kind(waiting: WaitingOperation, workers: Sequence[ServingWorker]) -> str:
    served = sorted({kind for worker in workers for kind in worker.kinds})
    return f"No worker serves the kind {waiting.kind}; served kinds: {', '.join(served)}."


def _no_label(waiting: WaitingOperation, workers: Sequence[ServingWorker]) -> str:
    served = sorted({label for worker in workers for label in worker.labels})
    others = f"; available labels: {', '.join(served)}" if served else ""
    return f"No worker has the label {waiting.label}{others}."


def _no_gpu(waiting: WaitingOperation, workers: Sequence[ServingWorker]) -> str:
    if waiting.need.processes == 1:
        return "Needs a GPU, but no available worker has one."
    most = max(len(worker.gpus) for worker in workers)
    return f"Needs {waiting.need.processes} GPUs of one worker; the most that one has is {most}."


def _few_slots(waiting: WaitingOperation, workers: Sequence[ServingWorker]) -> str:
    most = max(worker.max_processes for worker in workers)
    return f"Needs {waiting.need.processes} slots of one worker; the most that one has is {most}."


def _small_gpu(waiting: WaitingOperation, workers: Sequence[ServingWorker]) -> str:
    largest = max(gpu.memory_bytes for worker in workers for gpu in worker.gpus)
    needed = _size(waiting.need.gpu_memory_bytes)
    return f"Needs a GPU with {needed} of memory; the largest has {_size(largest)}."


def _small_memory(waiting: WaitingOperation, workers: Sequence[ServingWorker]) -> str:
    largest = max(worker.memory_bytes or 0 for worker in workers)
    needed = _size(waiting.need.memory_bytes)
    return f"Needs a machine with {needed} of memory; the largest has {_size(largest)}."


def _unreachable(waiting: WaitingOperation, workers: Sequence[ServingWorker]) -> str:
    return f"{_who(workers)} could run it, but {_does(workers, 'does', 'do')} not respond."


def _draining(waiting: WaitingOperation, workers: Sequence[ServingWorker]) -> str:
    return f"{_who(workers)} could run it, but {_does(workers, 'is', 'are')} draining."


def _ending(waiting: WaitingOperation, workers: Sequence[ServingWorker]) -> str:
    needed = waiting.need.first_checkpoint_seconds
    most = max(0.0, *(worker.seconds_left or 0.0 for worker in workers))
    return (
        f"{_who(workers)} could run it, but {_does(workers, 'ends', 'end')} before its first "
        f"checkpoint: that takes about {needed or 0:,} s, and {most:,.0f} s are left."
    )


def _storage_away(waiting: WaitingOperation, workers: Sequence[ServingWorker]) -> str:
    problem = next(worker.storage_problem for worker in workers if worker.storage_problem)
    return f"The checkpoint storage is unavailable: {problem}"


def _has_datasets(waiting: WaitingOperation, worker: ServingWorker) -> bool:
    return not (waiting.need.uses_datasets and worker.dataset_problem)


def _datasets_away(waiting: WaitingOperation, workers: Sequence[ServingWorker]) -> str:
    problem = next(worker.dataset_problem for worker in workers if worker.dataset_problem)
    return f"The dataset storage is unavailable: {problem}"


def _no_disk(waiting: WaitingOperation, workers: Sequence[ServingWorker]) -> str:
    most = max(workers, key=lambda worker: worker.disk_bytes or 0)
    return (
        f"Not enough disk space for checkpoints: {_size(most.disk_bytes or 0)} free on "
        f"{most.worker_id}, {_size(waiting.need.disk_bytes)} required for two checkpoints."
    )


def _share_too_small(waiting: WaitingOperation, workers: Sequence[ServingWorker]) -> str:
    return f"Needs more than its share: {_reason(waiting, workers, _unused(waiting))}."


def _budget_used_up(waiting: WaitingOperation, _: Sequence[ServingWorker]) -> str:
    return f"Waiting for a budget: {_budget_problem(waiting)}."


def _share_used_up(waiting: WaitingOperation, workers: Sequence[ServingWorker]) -> str:
    return f"Waiting for its share: {_reason(waiting, workers, waiting.allowances)}."


def _reason(
    waiting: WaitingOperation, workers: Sequence[ServingWorker], allowances: Sequence[Allowance]
) -> str:
    """Say why the shares do not allow the operation on the first worker where they do not."""
    return next(filter(None, (_exceeded(waiting, each, allowances) for each in workers)))


def _busy(waiting: WaitingOperation, workers: Sequence[ServingWorker]) -> str:
    slots = sum(worker.slots for worker in workers)
    if any(_has_place(waiting, worker) for worker in workers):
        busy = "every suitable GPU is in use"
    elif waiting.need.processes > 1:
        busy = f"{waiting.need.processes} slots of one worker must be free at once"
    elif not waiting.need.takes_slot:
        busy = f"all {NUM_WAIT_SLOTS} wait slots of each worker are in use"
    else:
        busy = "the only slot is busy" if slots == 1 else f"all {slots} slots are busy"
    return f"Waiting for a free worker: {busy}{_place(waiting)}."


def _place(waiting: WaitingOperation) -> str:
    match waiting.num_ahead:
        case None:
            return ""
        case 0:
            return "; next in the queue"
        case 1:
            return "; 1 operation is ahead of it"
        case number:
            return f"; {number:,} operations are ahead of it"


def _who(workers: Sequence[ServingWorker]) -> str:
    return workers[0].worker_id if len(workers) == 1 else f"{len(workers)} workers"


def _does(workers: Sequence[ServingWorker], one: str, many: str) -> str:
    return one if len(workers) == 1 else many


def _size(num_bytes: int) -> str:
    return f"{num_bytes / GB:.3g} GB"


def _counted(number: int, what: str) -> str:
    return f"a {what}" if number == 1 else f"{number} {what}s"


QUESTIONS = (
    Question(
        BlockingReason.NO_WORKER_FOR_KIND,
        _serves_kind,
        _no_kind,
        lambda waiting: f"serve the kind {waiting.kind}",
    ),
    Question(
        BlockingReason.NO_WORKER_WITH_LABEL,
        _has_label,
        _no_label,
        lambda waiting: f"have the label {waiting.label}",
    ),
    Question(
        BlockingReason.TOO_FEW_SLOTS,
        _has_slots,
        _few_slots,
        lambda waiting: f"have {_counted(waiting.need.processes, 'slot')} each, not over HTTP",
    ),
    Question(
        BlockingReason.NO_GPU,
        _has_gpu,
        _no_gpu,
        lambda waiting: f"have {_counted(waiting.need.processes, 'GPU')} each",
    ),
    Question(
        BlockingReason.GPU_TOO_SMALL,
        _has_gpu_memory,
        _small_gpu,
        lambda waiting: f"have GPUs with {_size(waiting.need.gpu_memory_bytes)} of memory",
    ),
    Question(
        BlockingReason.MEMORY_TOO_SMALL,
        _has_memory,
        _small_memory,
        lambda waiting: f"have {_size(waiting.need.memory_bytes)} of memory each",
    ),
    Question(
        BlockingReason.WORKERS_UNREACHABLE,
        lambda _, worker: worker.is_reachable,
        _unreachable,
        lambda _: "respond",
    ),
    Question(
        BlockingReason.WORKERS_DRAINING,
        lambda _, worker: not worker.is_draining,
        _draining,
        lambda _: "are not draining",
    ),
    Question(
        BlockingReason.WORKERS_ENDING,
        lambda waiting, worker: waiting.need.is_saved_within(worker.seconds_left),
        _ending,
        lambda _: "have the time for its first checkpoint",
    ),
    Question(
        BlockingReason.STORAGE_AWAY,
        lambda _, worker: not worker.storage_problem,
        _storage_away,
        lambda _: "reach the checkpoint storage",
    ),
    Question(
        BlockingReason.DATASETS_AWAY,
        _has_datasets,
        _datasets_away,
        lambda _: "reach the dataset storage",
    ),
    Question(
        BlockingReason.DISK_SHORT,
        _has_disk,
        _no_disk,
        lambda waiting: f"have {_size(waiting.need.disk_bytes)} of disk space for checkpoints",
    ),
    Question(
        BlockingReason.SHARE_TOO_SMALL,
        _can_be_allowed,
        _share_too_small,
        lambda _: "exceed no limit of its owner or project",
    ),
    Question(
        BlockingReason.BUDGET_USED_UP,
        _has_budget,
        _budget_used_up,
        lambda _: "exceed no budget of its owner or project",
    ),
    Question(
        BlockingReason.SHARE_USED_UP,
        _is_allowed,
        _share_used_up,
        lambda _: "exceed no limit of its owner or project",
    ),
    Question(
        BlockingReason.WORKERS_BUSY,
        _is_free,
        _busy,
        lambda waiting: f"have {_counted(waiting.need.processes, 'free slot')} each at once",
    ),
)
