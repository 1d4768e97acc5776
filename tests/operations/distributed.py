"""A distributed operation in one house of this process: its server in a thread, clients here."""

from dataclasses import dataclass

from apps.checkpoints.models import Checkpoint
from apps.operations.attempts import work
from apps.operations.models import ClientPart, MetricPoint, Operation, PrivacyAccount, PrivacyEntry
from apps.operations.requests import services
from apps.operations.scheduling.holding import Holding
from tests.operations.attempts import Running
from tests.waiting import wait_until

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
    PrivacyAccount.objects.create(pk=operation.pk, secret="5e" * 32)
    return operation


SERVER, FIRST = 99, 100  # priorities; clients that are made have their server's


@dataclass
class Round:
    """The server runs in a thread; the test decides when which client does."""

    house: work.House
    operation: Operation

    def __post_init__(self):
        self.house.holding = Holding(slots=4)
        before = services.get(self.operation.pk).attempt
        self.operation.row.update(priority=SERVER)  # else its thread takes a client that waits
        Operation.objects.filter(part__server=self.operation).update(priority=0)
        self.server = Running(self.house, self.operation)
        wait_until(lambda: services.get(self.operation.pk).attempt > before)

    def parts(self):
        return ClientPart.objects.filter(server=self.operation).order_by("round", "client")

    def sent(self, count):
        """Wait until so many clients are out."""
        wait_until(lambda: self.parts().count() == count)
        return [each.operation for each in self.parts().select_related("operation")]

    def has_ended(self):
        return not self.server.thread.is_alive()

    def last_first(self):
        """Have what waits done in the order of the clients turned round."""
        waiting = Operation.objects.waiting().exclude(pk=self.operation.pk)
        for priority, each in enumerate(waiting.order_by("part__client")):
            each.row.update(priority=priority)
        return bool(work._work_once(self.house))

    def to_its_end(self, seconds=60):
        wait_until(lambda: not self.last_first() and self.has_ended(), seconds)
        return services.get(self.operation.pk)


def run_distributed(house, operation):
    return Round(house, operation).to_its_end()


def ledger(operation):
    names = ("step", "noise", "round", "client", "level", "sample_rate", "steps")
    rows = PrivacyEntry.objects.filter(operation_id=operation.pk)
    return sorted(rows.values_list(*names))


def curve(operation):
    points = MetricPoint.objects.filter(operation_id=operation.pk)
    return sorted(points.values_list("name", "step", "value"))


def final(operation):
    manifest = Checkpoint.objects.get(operation=operation, type="final").manifest
    return {each["name"]: each["blake3"] for each in manifest}


def result(operation):
    return {**operation.result, "details": None}
