"""A storm of random faults over a whole installation, and what must be true after it.

I1  the attempts of an operation never compute at the same time (each step leaves its process's
    number in a file: a process that another has followed is never seen again)
I2  commits are monotonic in attempt: none by a superseded one (every checkpoint is kept)
I3  after quiet everything is terminal or waiting for a named cause
I4  COMPLETED equals the undisturbed run: every file of the result, the whole metric curve
I5  no process of the installation outlives it (checked where it is stopped; files are not)
"""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.journey.stack import QUICK, Stack
from tests.waiting import wait_until

CONFIG: dict[str, Any] = {
    "recipe": "scripted",
    "parameters": {"step_seconds": 0.02},
    "epochs": 100,
    "batch_size": 16,
    "scheduler": "cosine",
    "checkpoint": {"every_steps": 25, "keep_last": 1000, "keep_after_success": True},
    "restart": {"max_restarts": 100},
}
NUM_OPERATIONS = 4
LEASE_SECONDS = float(QUICK["ORPHAN_TIMEOUT_SECONDS"])
QUIET_SECONDS = 240


@dataclass(slots=True)
class Storm:
    stack: Stack
    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    traces: dict[str, Path] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    frozen: list[tuple[float, psutil.Process]] = field(default_factory=list)

    def run(self, *, seconds: float = 0, num_faults: int = 0) -> None:
        """Inject faults until the time or the number is reached, then wait for quiet and judge."""
        chance = random.Random(self.seed)  # noqa: S311 - to be replayed, not to be secret
        undisturbed = self.stack.submit(**CONFIG)
        self.stack.wait(undisturbed, "COMPLETED", seconds=QUIET_SECONDS)
        operations = self._submit()
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at or self.counts.total() < num_faults:
            time.sleep(chance.uniform(0.2, 2.0))
            self._inject(chance, operations)
            self._thaw(time.monotonic())
            if all(self._has_ended(each) for each in operations):
                self._judge(operations, undisturbed)
                operations = self._submit()
        self._thaw(float("inf"))
        self._wait_for_quiet(operations)
        self._judge(operations, undisturbed)

    def _submit(self) -> list[str]:
        operations = []
        for _ in range(NUM_OPERATIONS):
            trace = self.stack.data_dir / f"trace-{len(self.traces)}"
            parameters = CONFIG["parameters"] | {"trace": str(trace)}
            operation_id = self.stack.submit(**CONFIG | {"parameters": parameters})
            self.traces[operation_id] = trace
            operations.append(operation_id)
        return operations

    def _inject(self, chance: random.Random, operations: list[str]) -> None:
        name = chance.choice(list(FAULTS))
        with suppress(psutil.Error, httpx.HTTPError, IndexError):
            FAULTS[name](self, chance, operations)
            self.counts[name] += 1

    def one_of(self, chance: random.Random, word: str) -> psutil.Process:
        return chance.choice(self.stack.processes(word))

    def freeze(self, process: psutil.Process) -> None:
        """Stop a process for longer than a lease; it wakes up as a ghost."""
        process.suspend()
        self.frozen.append((time.monotonic() + LEASE_SECONDS + 2, process))

    def _thaw(self, moment: float) -> None:
        for until, process in list(self.frozen):
            if until <= moment:
                with suppress(psutil.NoSuchProcess):
                    process.resume()
                self.frozen.remove((until, process))

    def _ask(self, operation_id: str) -> dict[str, Any]:
        try:
            return dict(self.stack.get(f"operations/{operation_id}"))
        except (httpx.HTTPError, AssertionError):
            return {}  # web was killed a moment ago

    def _has_ended(self, operation_id: str) -> bool:
        operation = self._ask(operation_id)
        never_ran = operation.get("state") == "CANCELLED" and operation["attempt"] == 0
        return never_ran or operation.get("state") == "COMPLETED"

    def _wait_for_quiet(self, operations: list[str]) -> None:
        for operation_id in operations:

            def ended(operation_id: str = operation_id) -> bool:
                operation = self._ask(operation_id)
                state = operation.get("state")
                if state == "CANCELLED" and operation["attempt"] == 0:
                    return True  # before its first attempt: there is nothing to resume from
                if state == "CANCELLED":
                    with suppress(httpx.HTTPError, AssertionError):
                        self.stack.post(f"operations/{operation_id}/resume")
                return state in ("COMPLETED", "FAILED")

            try:
                wait_until(ended, QUIET_SECONDS)
            except AssertionError:
                self.violations.append(f"I3 {operation_id} did not end: {self._ask(operation_id)}")

    def _judge(self, operations: list[str], undisturbed: str) -> None:
        for operation_id in operations:
            self.violations += _problems(self.stack, operation_id, undisturbed)
            self.violations += _overlaps(operation_id, self.traces[operation_id])


def _problems(stack: Stack, operation_id: str, undisturbed: str) -> Iterator[str]:
    operation = stack.get(f"operations/{operation_id}")
    if operation["state"] == "CANCELLED" and operation["attempt"] == 0:
        return
    if operation["state"] != "COMPLETED":
        yield f"I3 {operation_id} is {operation['state']}: {operation['error']}"
        return
    if stack.artifacts(operation_id) != stack.artifacts(undisturbed):
        yield f"I4 {operation_id}: its result differs from the undisturbed one"
    if stack.curve(operation_id) != stack.curve(undisturbed):
        yield f"I4 {operation_id}: its metric curve differs from the undisturbed one"
    saved = stack.get("checkpoints", operation_id=operation_id, limit=500)[::-1]
    numbers = [each["attempt"] for each in saved]
    if numbers != sorted(numbers):
        yield f"I2 {operation_id}: a superseded attempt committed: {numbers}"


def _overlaps(operation_id: str, trace: Path) -> Iterator[str]:
    if not trace.exists():
        return  # it never ran
    processes = [process for process, _ in groupby(trace.read_text().split())]
    if len(processes) != len(set(processes)):
        yield f"I1 {operation_id}: its attempts computed at the same time: {processes}"


def _children(storm: Storm) -> list[psutil.Process]:
    return [
        child
        for nursery in storm.stack.processes("trainops.engines.nursery")
        for child in nursery.children()
    ]


def _kill_child(storm: Storm, chance: random.Random, operations: list[str]) -> None:
    chance.choice(_children(storm)).kill()


def _freeze_child(storm: Storm, chance: random.Random, operations: list[str]) -> None:
    storm.freeze(chance.choice(_children(storm)))


def _kill_nursery(storm: Storm, chance: random.Random, operations: list[str]) -> None:
    storm.one_of(chance, "trainops.engines.nursery").kill()


def _kill_worker(storm: Storm, chance: random.Random, operations: list[str]) -> None:
    storm.one_of(chance, "trainops.celery worker").kill()


def _stop_worker(storm: Storm, chance: random.Random, operations: list[str]) -> None:
    storm.one_of(chance, "trainops.celery worker").terminate()


def _stop_worker_twice(storm: Storm, chance: random.Random, operations: list[str]) -> None:
    worker = storm.one_of(chance, "trainops.celery worker")
    worker.terminate()
    time.sleep(0.3)
    worker.terminate()


def _freeze_worker(storm: Storm, chance: random.Random, operations: list[str]) -> None:
    storm.freeze(storm.one_of(chance, "trainops.celery worker"))


def _kill_beat(storm: Storm, chance: random.Random, operations: list[str]) -> None:
    storm.one_of(chance, "trainops.celery beat").kill()


def _kill_web(storm: Storm, chance: random.Random, operations: list[str]) -> None:
    storm.one_of(chance, "granian").kill()


def _kill_broker(storm: Storm, chance: random.Random, operations: list[str]) -> None:
    storm.one_of(chance, "redis-server").kill()


def _freeze_broker(storm: Storm, chance: random.Random, operations: list[str]) -> None:
    storm.freeze(storm.one_of(chance, "redis-server"))


def _kill_database(storm: Storm, chance: random.Random, operations: list[str]) -> None:
    """SIGQUIT is PostgreSQL's immediate shutdown: no goodbye, recovery at the next start."""
    servers = sorted(storm.stack.processes("postgres"), key=lambda process: process.pid)
    servers[0].send_signal(signal.SIGQUIT)


def _cancel(storm: Storm, chance: random.Random, operations: list[str]) -> None:
    storm.stack.client.post(f"operations/{chance.choice(operations)}/cancel")


def _resume(storm: Storm, chance: random.Random, operations: list[str]) -> None:
    for operation_id in operations:
        storm.stack.client.post(f"operations/{operation_id}/resume")


Fault = Callable[[Storm, random.Random, list[str]], None]
FAULTS: dict[str, Fault] = {
    "kill child": _kill_child,
    "freeze child": _freeze_child,
    "kill nursery": _kill_nursery,
    "kill worker": _kill_worker,
    "stop worker": _stop_worker,
    "stop worker twice": _stop_worker_twice,
    "freeze worker": _freeze_worker,
    "kill beat": _kill_beat,
    "kill web": _kill_web,
    "kill broker": _kill_broker,
    "freeze broker": _freeze_broker,
    "kill database": _kill_database,
    "cancel": _cancel,
    "resume": _resume,
}
