"""What a fleet of workers costs PostgreSQL: 300 workers that run 3,000 operations.

The registry, leases, progress, checkpoints, claims and sweeps are those of trainops; only the
processes of the operations are left out. Three parts:

- each duty of a worker, one after the other: time, statements, and processor time of PostgreSQL;
- from that, the cores that PostgreSQL needs for all duties as often as workers fulfil them;
- all duties in that proportion, from several processes at once as fast as they can, while
  another client requests the list from the web server.
"""

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import serving
from benchmarks.filled import ROOT, on_postgresql, set_up, spread

if TYPE_CHECKING:
    from benchmarks.duties import Duty

NUM_ROUNDS, NUM_CLIENTS, LOADED_SECONDS = 300, 4, 60.0
# Rows stay as they were filled, though the duties of one worker take longer than usual.
PATIENT = {
    "TRAINOPS_ORPHAN_TIMEOUT_SECONDS": "86400",
    "TRAINOPS_HEALTH_CHECK_TIMEOUT_SECONDS": "86400",
    "TRAINOPS_WORKER_GONE_SECONDS": "172800",
}


def main() -> dict[str, Any]:
    """Measure, print three tables, and return the figures."""
    results = on_postgresql("benchmarks.fleet", PATIENT)
    print(f"{'duty':36}{'ms p50':>8}{'p99':>8}{'statements':>12}{'ms of CPU':>11}{'a second':>10}")
    for name, each in results["duties"].items():
        print(
            f"{name:36}{each['p50']:8.2f}{each['p99']:8.2f}{each['statements']:12.1f}"
            f"{each['cpu_ms']:11.3f}{each['per_second']:10.1f}"
        )
    for num_workers, cores in results["cores"].items():
        largest = sorted(cores, key=lambda name: -cores[name])[:4]
        parts = ", ".join(f"{name} {cores[name]:.2f}" for name in largest)
        print(f"\n{num_workers} workers: {sum(cores.values()):.2f} cores of PostgreSQL ({parts})")
    together = results["together"]
    print(
        f"\nTogether, {NUM_CLIENTS} processes on {os.cpu_count()} cores: {together['share']:.0%} of"
        f" the pace of all workers, {together['statements']:,.0f} statements and"
        f" {together['rows']:,.0f} rows a second, {together['cpu_seconds']:.2f} cores of PostgreSQL"
    )
    for name, each in together["milliseconds"].items():
        print(f"{name:36}{each['p50']:8.1f}{each['p99']:8.1f}")
    return results


class Meter:
    """Counts this process's statements and rows, and processor time of its PostgreSQL backend."""

    def __init__(self) -> None:
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            self._schedstat = Path(f"/proc/{cursor.fetchone()[0]}/schedstat")
        self.num_statements = self.num_rows = 0
        connection.execute_wrappers.append(self._count)

    def _count(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        result = execute(sql, params, many, context)
        self.num_statements += 1
        self.num_rows += max(0, context["cursor"].rowcount)
        return result

    @property
    def cpu_seconds(self) -> float:
        return int(self._schedstat.read_text().split()[0]) / 1e9


def measure() -> dict[str, Any]:
    set_up()
    from benchmarks import duties

    duties.fill_fleet()
    every = duties.all_duties()
    alone = {name: _alone(duty) for name, duty in every.items()}
    cores = {
        number: {
            name: round(duty.per_second(number) * alone[name]["cpu_ms"] / 1e3, 3)
            for name, duty in every.items()
        }
        for number in (duties.NUM_WORKERS, 1000)
    }
    pace = sum(duty.per_second() for duty in every.values())
    return {"duties": alone, "cores": cores, "together": _together(pace)}


def _alone(duty: "Duty") -> dict[str, float]:
    """Fulfil a duty for one worker, or operation, after the other."""
    meter, seconds = Meter(), []
    numbers = [random.randrange(duty.num_doers) for _ in range(NUM_ROUNDS)]
    for number in numbers:
        duty.work(number)  # what is read once for each is read now
    cpu, before = meter.cpu_seconds, meter.num_statements
    for number in numbers:
        began = time.perf_counter()
        duty.work(number)
        seconds.append(time.perf_counter() - began)
    return spread(seconds) | {
        "statements": (meter.num_statements - before) / NUM_ROUNDS,
        "cpu_ms": round(1e3 * (meter.cpu_seconds - cpu) / NUM_ROUNDS, 4),
        "per_second": duty.per_second(),
    }


def _together(pace: float) -> dict[str, Any]:
    """Fulfil all duties in the proportion of a fleet, from several processes at once.

    pace: duties a second of the fleet.
    """
    command = [sys.executable, "-m", "benchmarks.fleet", "client"]
    with serving.serving(serving.OURS) as port:
        clients = [
            subprocess.Popen([*command, str(number)], cwd=ROOT, stdout=subprocess.PIPE)
            for number in range(NUM_CLIENTS)
        ]
        lists = asyncio.run(_lists(port))
        printed = [each.communicate()[0] for each in clients]
    found = [json.loads(each) for each in printed]
    seconds: dict[str, list[float]] = defaultdict(list)
    for each in found:
        for name, some in each["seconds"].items():
            seconds[name] += some
    totals = {
        key: sum(each[key] for each in found) / LOADED_SECONDS
        for key in ("statements", "rows", "cpu_seconds")
    }
    return {
        "share": sum(map(len, seconds.values())) / LOADED_SECONDS / pace,
        **totals,
        "milliseconds": {name: spread(each) for name, each in seconds.items() if each}
        | {"list (web)": spread(lists)},
    }


async def _lists(port: int) -> list[float]:
    """Ask for the list three times a second while the clients work; return the seconds of each."""
    from django.contrib.auth.models import User
    from django.test import Client

    def signed_in() -> str:
        client = Client()
        client.force_login(User.objects.get(username="bench"))
        return f"sessionid={client.cookies['sessionid'].value}"

    cookie = await asyncio.to_thread(signed_in)
    seconds: list[float] = []
    end = time.monotonic() + LOADED_SECONDS
    while time.monotonic() < end:
        seconds += (await serving.load(port, "/", [cookie], 1, num_requests=1, num_warm=0))[1]
        await asyncio.sleep(0.3)
    return seconds


def client(number: int) -> dict[str, Any]:
    """Fulfil duties in the proportion of a fleet for a while; return how long each took."""
    set_up(is_new=False)
    from benchmarks.duties import all_duties

    meter, duties = Meter(), all_duties()
    rng = random.Random(number)
    weights = [duty.per_second() for duty in duties.values()]
    seconds: dict[str, list[float]] = {name: [] for name in duties}
    cpu, end = meter.cpu_seconds, time.monotonic() + LOADED_SECONDS
    while time.monotonic() < end:
        (name,) = rng.choices(list(duties), weights)
        # Each process has its own operations: one supervisor writes what an attempt reports.
        share = duties[name].num_doers // NUM_CLIENTS
        which = rng.randrange(number * share, (number + 1) * share)
        began = time.perf_counter()
        duties[name].work(which)
        seconds[name].append(time.perf_counter() - began)
    return {
        "seconds": seconds,
        "statements": meter.num_statements,
        "rows": meter.num_rows,
        "cpu_seconds": meter.cpu_seconds - cpu,
    }


if __name__ == "__main__":
    print(json.dumps(client(int(sys.argv[2])) if sys.argv[1:] else measure()))
