"""What workers of a fleet do again and again; see `benchmarks.fleet`. Import it after `set_up`."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from itertools import count

from django.contrib.auth.models import User
from django.db.models import F

from apps.installation import counters, periodic, schema
from apps.operations.attempts.pace import Pace
from apps.operations.attempts.report_writer import ReportWriter
from apps.operations.lifecycle import State
from apps.operations.models import Attempt, Operation
from apps.operations.placement import Offer
from apps.operations.requests import services
from apps.operations.scheduling import claims, gangs, handbacks
from apps.workers import fleet, load, maintenance, registry
from benchmarks.filled import fill, gather_statistics
from trainops.clock import seconds_from_now
from trainops.kind import KINDS
from trainops.process.protocol import ProgressUpdate
from trainops.runtime.checkpoint.manifest import Artifact, CheckpointType, StagedCheckpoint
from trainops.thresholds import Thresholds

NUM_WORKERS, SLOTS = 300, 10
NUM_RUNNING = NUM_WORKERS * SLOTS
NUM_FINISHED, NUM_WAITING = 20_000, 300  # no worker has the GPU that those wait for
SECONDS_OF_OPERATION = 3600.0  # between its claim and its end
STEPS_OF_REPORT = 5  # ten a second, with two metrics each
CONFIG = {"recipe": "digits", "epochs": 2}
OFFER = Offer(kinds=sorted(KINDS), memory_bytes=1 << 40, disk_bytes=1 << 60)


@dataclass(frozen=True, slots=True)
class Duty:
    """What is done again and again: by whom, and how often."""

    work: Callable[[int], object]  # of the worker, or running operation, of this number
    seconds: float | Callable[[Pace], float]  # between two times
    is_of_worker: bool = True

    @property
    def num_doers(self) -> int:
        return NUM_WORKERS if self.is_of_worker else NUM_RUNNING

    def per_second(self, num_workers: int = NUM_WORKERS) -> float:
        """Return how often it is done a second in an installation with this number of workers."""
        pace = Pace()
        pace.num_workers, pace.num_running = num_workers, num_workers * SLOTS
        seconds = self.seconds(pace) if callable(self.seconds) else self.seconds
        return (pace.num_workers if self.is_of_worker else pace.num_running) / seconds


def worker_id(number: int) -> str:
    return f"bench{number:04d}@host"


def operation_id(number: int) -> str:
    return f"op_training_20260101_000000_{number:06x}"


def held(number: int) -> list[tuple[str, int]]:
    return [(operation_id(number * SLOTS + slot), 1) for slot in range(SLOTS)]


def fill_fleet() -> None:
    """Add workers, operations that run on them, finished ones, and some that fit no worker."""
    owner = fill(NUM_RUNNING, states=["PENDING"])
    fill(NUM_FINISHED, states=["COMPLETED"], first=NUM_RUNNING)
    for number in range(NUM_WORKERS):
        registry.register(worker_id=worker_id(number), kinds=sorted(KINDS), slots=SLOTS)
        mine = [key for key, _ in held(number)]
        Operation.objects.filter(pk__in=mine).update(
            state=State.RUNNING, worker_id=worker_id(number), attempt=1,
            started_at=F("created_at"), lease_expires_at=seconds_from_now(86400),
        )  # fmt: skip
        Attempt.objects.bulk_create(
            Attempt(operation_id=each, number=1, worker_id=worker_id(number)) for each in mine
        )
    for _ in range(NUM_WAITING):
        services.submit(kind="training", config=CONFIG | {"device": "cuda"}, owner=owner)
    gather_statistics()


def be_alive(number: int) -> None:
    if len(claims.renew(worker_id(number), held(number))) != SLOTS:
        raise RuntimeError(f"{worker_id(number)} lost an operation")
    gangs.held(worker_id(number), [])
    registry.heartbeat(worker_id=worker_id(number), num_running=SLOTS)
    fleet.size()


def read_requests(number: int) -> None:
    mine = held(number)
    asked = Operation.objects.filter(pk__in=[key for key, _ in mine]).exclude(stop_requested="")
    list(asked.values_list("pk", "attempt", "stop_requested"))
    handbacks.requested(mine)


def look_for_work(number: int) -> None:
    if claims.claim(worker_id=worker_id(number), host="here", offer=OFFER) is not None:
        raise RuntimeError("something fitted")


def report_storage(number: int) -> None:
    fleet.report_storage(
        worker_id=worker_id(number), free_bytes=1 << 40, storage_problem="", dataset_problem=""
    )


def be_registered(number: int) -> None:
    schema.require_known()
    registry.forget_gone()
    registry.is_known(worker_id=worker_id(number))


def sweep(number: int) -> None:
    maintenance.sweep(actor=worker_id(number))


def look_at_clean_up(number: int) -> None:
    periodic.claim(maintenance.CLEAN_UP, every=timedelta(days=1))


def report_load(number: int) -> None:
    load.record(worker_id(number), load.MachineLoad(50.0, 1 << 34, []))


def add_counts(number: int) -> None:
    counters.COUNTERS.add("checkpoints_committed", kind="training", type="periodic")
    counters.COUNTERS.flush()


class Attempts:
    """What is reported of attempts: a writer for each, as its supervisor has it."""

    def __init__(self) -> None:
        self._writers: dict[int, ReportWriter] = {}
        self._numbers = count(os.getpid() << 20)
        self._owner = User.objects.get(username="bench")

    def _with_report(self, number: int) -> ReportWriter:
        """Return the writer of an operation, which has received what there is to write next."""
        if number not in self._writers:
            operation = Operation.objects.get(pk=operation_id(number))
            self._writers[number] = ReportWriter(operation, step=operation.step)
        writer = self._writers[number]
        first = writer.step + 1
        points = tuple(
            (step, time.time(), {"loss": 1 / (step + 1), "accuracy": 0.5})
            for step in range(first, first + STEPS_OF_REPORT)
        )
        writer.progress(ProgressUpdate(points[-1][0], 10**9, "", points))
        return writer

    def progress(self, number: int) -> None:
        self._with_report(number).flush()

    def save(self, number: int) -> None:
        """Commit a checkpoint, without files."""
        writer, digest = self._with_report(number), f"{next(self._numbers):064x}"
        names = "state.json", "model.pt", "optimizer.pt", "rng.pt"
        artifacts = tuple(Artifact(name, 1 << 20, digest) for name in names)
        name, kind = f"a0001-s{writer.step:010}-periodic", CheckpointType.PERIODIC
        writer.commit(StagedCheckpoint(name, kind, writer.step, digest, artifacts, {}, 0.5))

    def begin_and_end(self, number: int) -> None:
        services.submit(kind="training", config=CONFIG, owner=self._owner)
        taken = claims.claim(worker_id=worker_id(number // SLOTS), host="here", offer=OFFER)
        if taken is not None:  # else another process took it
            claims.finish(taken, State.COMPLETED, outcome=Attempt.Outcome.COMPLETED)


def all_duties() -> dict[str, Duty]:
    """Return every duty with its usual interval."""
    attempts = Attempts()
    heartbeat = _usual("health_check_interval_seconds")
    poll = _usual("cancel_poll_seconds")
    return {
        "lease, heartbeat": Duty(be_alive, heartbeat),
        "stop requests": Duty(read_requests, poll),
        "look for work, nothing fits": Duty(look_for_work, poll),
        "free space": Duty(report_storage, heartbeat),
        "registration": Duty(be_registered, _usual("reregistration_check_interval_seconds")),
        "sweep": Duty(
            sweep, lambda pace: pace.sweep_seconds(_usual("orphan_check_interval_seconds"))
        ),
        "clean-up due": Duty(look_at_clean_up, maintenance.CLEAN_UP_CHECK_SECONDS),
        "load": Duty(report_load, load.SAMPLE_SECONDS),
        "counters": Duty(add_counts, counters.FLUSH_SECONDS),
        "progress": Duty(
            attempts.progress, lambda pace: pace.flush_seconds(0.0), is_of_worker=False
        ),
        "checkpoint": Duty(
            attempts.save, _usual("checkpoint_time_interval_seconds"), is_of_worker=False
        ),
        "submit, claim, finish": Duty(
            attempts.begin_and_end, SECONDS_OF_OPERATION, is_of_worker=False
        ),
    }


def _usual(threshold: str) -> float:
    return float(Thresholds.model_fields[threshold].default)
