"""A distributed operation in one runtime of this process: its server in a thread, clients here."""

from dataclasses import dataclass

from apps.checkpoints.models import Checkpoint
from apps.ledger.services import create
from apps.operations.attempts import work
from apps.operations.models import MetricPoint, Operation, Subtask
from apps.operations.requests import services
from apps.operations.scheduling.slots import Slots
from tests.operations.attempts import Running
from tests.operations.releases import rows_of
from tests.waiting import wait_until
from trainops.media.names import SYSTEM

PRIVACY = {
    "none": {},
    "sample": {"noise_multiplier": 1.0},
    "user": {"user_noise_multiplier": 1.0},
    "hybrid": {"noise_multiplier": 1.0, "user_noise_multiplier": 2.0},
}
CONFIG = {
    "recipe": "crowd", "rounds": 2, "clients": 3, "local_epochs": 2, "batch_size": 6, "threads": 1,
    "optimizer": "adam", "placement": "distributed",
}  # fmt: skip


def submit(owner=None, *, mode="none", **config):
    """Submit one whose noise is that of any other of these."""
    config = CONFIG | {"privacy": {"mode": mode, **PRIVACY[mode]}} | config
    operation = services.submit(kind="federated", config=config, owner=owner)
    create(operation.pk, "5e" * 32)
    return operation


SERVER, FIRST = 99, 100  # priorities; clients that are made have their server's


@dataclass
class Round:
    """The server runs in a thread; the test decides when which client does."""

    runtime: work.WorkerRuntime
    operation: Operation

    def __post_init__(self):
        self.runtime.slots = Slots(count=4)
        before = services.get(self.operation.pk).attempt
        self.operation.row.update(priority=SERVER)  # else its thread takes a client that waits
        Operation.objects.filter(subtask__parent=self.operation).update(priority=0)
        self.server = Running(self.runtime, self.operation)
        wait_until(lambda: services.get(self.operation.pk).attempt > before)

    def subtasks(self):
        return Subtask.objects.filter(parent=self.operation).order_by("group", "index")

    def sent(self, count):
        """Wait until so many clients are out."""
        wait_until(lambda: self.subtasks().count() == count)
        return [each.operation for each in self.subtasks().select_related("operation")]

    def has_ended(self):
        return not self.server.thread.is_alive()

    def last_first(self):
        """Have what waits done in the order of the clients turned round."""
        waiting = Operation.objects.waiting().exclude(pk=self.operation.pk)
        for priority, each in enumerate(waiting.order_by("subtask__index")):
            each.row.update(priority=priority)
        return bool(work._work_once(self.runtime))

    def to_its_end(self):
        wait_until(lambda: not self.last_first() and self.has_ended())
        return services.get(self.operation.pk)


def run_distributed(runtime, operation):
    return Round(runtime, operation).to_its_end()


def ledger(operation):
    names = ("step", "noise", "round", "client", "level", "sample_rate", "steps")
    return sorted(rows_of(operation.pk, names))


def curve(operation):
    points = MetricPoint.objects.filter(operation_id=operation.pk)
    points = points.exclude(name__startswith=SYSTEM)
    return sorted(points.values_list("name", "step", "value"))


def final(operation):
    manifest = Checkpoint.objects.get(operation=operation, type="final").manifest
    return {each["name"]: each["blake3"] for each in manifest}


def result(operation):
    return {**operation.result, "details": None}
