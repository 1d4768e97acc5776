"""A storm of random faults over a whole installation, replayed by its seed, and judged."""

import random
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from tests.faults import judge
from tests.faults.faults import FAULTS, NURSERY, Fault
from tests.faults.installations import Installation
from tests.journey.stack import QUICK, Stack
from tests.waiting import wait_until

KEPT = {"keep_last": 1000, "keep_after_success": True}
STUBBORN = {"restart": {"max_restarts": 100}}
OFTEN: dict[str, Any] = {
    "recipe": "scripted",
    "parameters": {"step_seconds": 0.02},
    "epochs": 100,
    "batch_size": 16,
    "scheduler": "cosine",
    "checkpoint": {"every_steps": 25, **KEPT},
    **STUBBORN,
}
# With many checkpoints a ghost is found out at the next one. With none, only deadlines stop it.
RARELY = OFTEN | {
    "epochs": 40,
    "checkpoint": {"every_steps": 100_000, "every_seconds": 100_000.0, **KEPT},
}
# Agents with a network each, in the midst of episodes, with rings, priorities and stages.
AGENTS: dict[str, Any] = {
    "kind": "rl",
    "recipe": "grid_town",
    "agents": 3,
    "environment_steps": 3 * 2000,
    "population": {"networks": "separate"},
    "network": {"hidden_sizes": [16]},
    "replay": {"capacity": 3000, "prioritized": True},
    "dqn": {"learning_starts": 100, "batch_size": 16, "n_step": 3},
    "curriculum": {"rule": "adaptive", "stages": [{"max_steps": 30}, {}], "min_episodes": 2},
    "evaluation": {"every_steps": 1000, "episodes": 2},
    "log_every_steps": 100,
    "checkpoint": {"every_steps": 250, "every_episodes": 1_000_000, **KEPT},
    **STUBBORN,
}
# Clients in the midst of a round, with updates that wait for its end.
CLIENTS: dict[str, Any] = {
    "kind": "federated",
    "recipe": "crowd",
    "parameters": {"examples": 300},
    "rounds": 40,
    "clients": 5,
    "fraction": 0.6,
    "local_epochs": 2,
    "batch_size": 4,
    "server": {"strategy": "fedadam", "learning_rate": 0.05},
    "checkpoint": {"every_client_epochs": 20, **KEPT},
    **STUBBORN,
}
# A generator function, in the midst of its epochs.
LOOP: dict[str, Any] = {
    "kind": "loop",
    "recipe": "digits_loop",
    "parameters": {"epochs": 800, "batch_size": 128},
    "log_every_steps": 100,
    "checkpoint": {"every_steps": 300, "every_epochs": 1_000_000, **KEPT},
    **STUBBORN,
}
# On both workers at once.
NODES = LOOP | {
    "parameters": {"epochs": 200, "batch_size": 128},
    "nodes": 2,
    "checkpoint": {"every_steps": 100, "every_epochs": 1_000_000, **KEPT},
}
# Preempts the others, and is not begun again once it ended.
URGENT = OFTEN | {"epochs": 5}
CONFIGS = {
    "often": OFTEN, "rarely": RARELY, "agents": AGENTS, "clients": CLIENTS, "loop": LOOP,
    "nodes": NODES, "urgent": URGENT,
}  # fmt: skip
PRIORITIES = {"urgent": 5}
ALWAYS_EXPLAINED = {"nodes": {"WORKER_LOST"}}  # so a node calls whatever happens to another one
NUM_LASTING = 10  # so many faults may go on having effects
LEASE_SECONDS = float(QUICK["ORPHAN_TIMEOUT_SECONDS"])
QUIET_SECONDS = 240
FAILED_TO_INFLICT = (
    psutil.Error, httpx.HTTPError, sqlite3.Error, OperationalError, RedisError, OSError, IndexError,
    ValueError, AssertionError,
)  # fmt: skip


@dataclass(slots=True)
class Storm:
    over: Installation
    seed: int
    names: Collection[str] = tuple(CONFIGS)
    faults: Collection[str] = ()  # the names of those that are drawn; none: all
    counts: Counter[str] = field(default_factory=Counter)
    undisturbed: dict[str, str] = field(default_factory=dict)  # one operation for each name
    outcomes: dict[str, judge.Outcome] = field(default_factory=dict)  # of those
    running: list["_Running"] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    num_begun: Counter[str] = field(default_factory=Counter)  # by name of its config
    num_judged: int = 0
    num_lost: int = 0  # begun after the backup that was restored
    reasons: Counter[str] = field(default_factory=Counter)
    _healing: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    _explained: list[frozenset[str]] = field(default_factory=list)
    _backed_up: list["_Running"] = field(default_factory=list)
    _restore_at: float | None = None  # when what was backed up is all that is left

    @property
    def stack(self) -> Stack:
        return self.over.stack

    @property
    def beyond_a_lease(self) -> float:
        return LEASE_SECONDS + 2

    @property
    def operations(self) -> list[str]:
        return [each.operation_id for each in self.running]

    def run(self, *, seconds: float = 0, num_faults: int = 0) -> None:
        """Inject faults until the time or the number is reached, then wait for quiet and judge."""
        chance = random.Random(self.seed)  # noqa: S311 - to be replayed, not to be secret
        self.undisturbed = {name: self.stack.submit(**CONFIGS[name]) for name in self.names}
        for name, each in self.undisturbed.items():
            self.stack.wait(each, "COMPLETED", seconds=QUIET_SECONDS)
            self.outcomes[name] = judge.outcome(self.stack, each)
        self.running = [self._begin(name) for name in self.names if name not in PRIORITIES]
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at or self.counts.total() < num_faults:
            time.sleep(chance.uniform(0.2, 3.0))
            self._require_up()
            self._inject(chance)
            self._heal(time.monotonic())
            self._restore_if_due(time.monotonic())
            self._judge_ended()
        self._calm()
        for each in self.running:
            self._judge(each)
        for trace in self.over.hooks.glob("trace-*"):
            self.violations += judge.overlaps(trace.name, trace)  # a ghost may have woken up late
        self.violations += self._patiently(self._leftovers)

    def _judge_ended(self) -> None:
        """Judge what has come to its end, and begin another one in its place."""
        for each in list(self.running):
            if self._ask(each.operation_id).get("state") in ("COMPLETED", "FAILED"):
                self._judge(each)
                self.running.remove(each)
                if each.name not in PRIORITIES:
                    self.running.append(self._begin(each.name))

    def preempt(self) -> None:
        """Submit an operation of higher priority, unless there is one."""
        if any(each.name == "urgent" for each in self.running):
            raise ValueError("an urgent operation is there already")
        self.running.append(self._begin("urgent"))

    def back_up(self, seconds: float) -> None:
        """Make a backup under load, which is restored later. It may fail as long as faults last."""
        if self._restore_at is not None:
            raise ValueError("a backup is to be restored already")
        output = ""

        def is_made() -> bool:
            nonlocal output
            code, output = self.over.back_up()
            return code == 0

        if not is_made():
            self._heal(float("inf"))
            try:
                wait_until(is_made, QUIET_SECONDS)
            except AssertionError:
                self.violations.append(f"I9 no backup could be made: {output}")
                raise
        self._backed_up, self._restore_at = list(self.running), time.monotonic() + seconds

    def _restore_if_due(self, moment: float) -> None:
        """Lose everything but the backup, restore it, and continue with what it has."""
        if self._restore_at is None or self._restore_at > moment:
            return
        self._heal(float("inf"))  # of what is lost, nothing wakes up
        self.over.lose()
        code, output = self.over.restore()
        if code:
            raise RuntimeError(f"the backup cannot be restored: {output}")
        finished = {self.undisturbed[name]: self.outcomes[name] for name in self.names}
        unfinished = [each.operation_id for each in self._backed_up]
        self.violations += self._patiently(
            lambda: list(judge.not_restored(self.stack, finished, unfinished))
        )
        self.num_lost += len(set(self.operations) - set(unfinished))
        self.running, self._restore_at = self._backed_up, None

    def _begin(self, name: str) -> "_Running":
        config, priority = CONFIGS[name], PRIORITIES.get(name, 0)
        operation_id = self._patiently(lambda: self.stack.submit(**config, priority=priority))
        self.num_begun[name] += 1
        # What was done a moment ago may strike it, too.
        since = max(0, len(self._explained) - NUM_LASTING)
        trace = self.over.hooks / f"trace-{operation_id}"
        return _Running(operation_id, name, trace, since)

    def _patiently(self, ask: Callable[[], Any]) -> Any:
        """Ask again while web or database are away."""
        while True:
            with suppress(httpx.HTTPError, AssertionError):
                return ask()
            self._require_up()
            self._heal(time.monotonic())
            time.sleep(0.2)

    def _require_up(self) -> None:
        """No fault is aimed at `up` itself: it starts again whatever else dies."""
        for process in (self.stack.process, *self.stack.joined):
            if (exit_code := process.poll()) is not None:
                raise RuntimeError(f"`up` has ended with exit code {exit_code}; its log says why")

    def _inject(self, chance: random.Random) -> None:
        possible = [
            each
            for each in FAULTS
            if (not each.needs or each.needs in self.over.has)
            and (not self.faults or each.name in self.faults)
        ]
        fault: Fault = chance.choice(possible)
        with suppress(*FAILED_TO_INFLICT):
            self._explained.append(fault.explains)
            fault.inflict(self, chance)
            self.counts[fault.name] += 1

    def heal_later(self, seconds: float, heal: Callable[[], None]) -> None:
        self._healing.append((time.monotonic() + seconds, heal))

    def freeze(self, processes: Iterable[psutil.Process]) -> None:
        """Stop processes for longer than a lease; they wake up as ghosts."""
        for process in processes:
            process.suspend()
            self.heal_later(self.beyond_a_lease, process.resume)

    def _heal(self, moment: float) -> None:
        while due := [each for each in self._healing if each[0] <= moment]:
            self._healing.remove(due[0])
            with suppress(psutil.NoSuchProcess):
                due[0][1]()

    def _ask(self, operation_id: str) -> dict[str, Any]:
        try:
            return dict(self.stack.get(f"operations/{operation_id}"))
        except (httpx.HTTPError, AssertionError):
            return {}  # web was killed a moment ago

    def _comes_to_its_end(self, operation_id: str) -> bool:
        state = self._ask(operation_id).get("state")
        if state == "CANCELLED":
            with suppress(httpx.HTTPError):  # 404: there is nothing to resume from
                answer = self.stack.client.post(f"operations/{operation_id}/resume")
                return answer.status_code == httpx.codes.NOT_FOUND
        return state in ("COMPLETED", "FAILED")

    def _calm(self) -> None:
        """End every fault, and wait until everything has come to its end."""
        self._heal(float("inf"))
        self._restore_if_due(float("inf"))
        for armed in self.over.hooks.glob("armed-*"):
            armed.unlink(missing_ok=True)
        for each in self.operations:
            try:
                wait_until(lambda each=each: self._comes_to_its_end(each), QUIET_SECONDS)
            except AssertionError:
                found = self._patiently(lambda each=each: self.stack.get(f"operations/{each}"))
                self.violations.append(f"I3 {each} did not end: {found}")
                self.violations += judge.stuck(found)

    def _judge(self, running: "_Running") -> None:
        self.violations += self._patiently(lambda: self._judged(running))
        self.num_judged += 1

    def _judged(self, running: "_Running") -> list[str]:
        always = ALWAYS_EXPLAINED.get(running.name, ())
        explained = frozenset(always).union(*self._explained[running.since :])
        undisturbed = self.outcomes[running.name]
        found = judge.problems(
            self.stack, running.operation_id, undisturbed, running.trace, explained
        )
        violations = list(found)
        path = f"operations/{running.operation_id}"
        attempts = self.stack.get(f"{path}/attempts", limit=judge.FEW)
        if not violations:  # else it is kept, to be looked at
            self.stack.delete(path)
        self.reasons.update(each["reason"] or each["outcome"] for each in attempts)
        return violations

    def _leftovers(self) -> list[str]:
        """What an ended attempt leaves is gone within a heartbeat, and after a clean-up."""

        def found() -> list[str]:
            children = [c for each in self.stack.processes(NURSERY) for c in each.children()]
            orphans = [f"I5 a child is left: {child}" for child in children]
            self.stack.post("checkpoints/cleanup", {"empty_trash": True})
            return [*orphans, *self.older_programs(), *judge.leftovers(self.stack)]

        with suppress(AssertionError):
            wait_until(lambda: not found(), 4 * LEASE_SECONDS)
        return found()

    def older_programs(self) -> Iterator[str]:
        for program in self.over.programs():
            with suppress(psutil.NoSuchProcess):
                if Path(program.cwd()) != self.over.tree:
                    yield f"I10 {program} is of the version before"


@dataclass(frozen=True, slots=True)
class _Running:
    """One operation in the storm."""

    operation_id: str
    name: str  # of its config
    trace: Path
    since: int  # the faults from here on may explain what happens to it
