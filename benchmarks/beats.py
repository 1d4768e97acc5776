"""What a worker does again and again, with 1,000 and with 100,000 finished operations.

Goal: flat. Heartbeat, renewal, wishes, both sweeps and a look for work that finds none, on SQLite
and on PostgreSQL, with two operations that run on this worker.
"""

import json
import time
from typing import Any

from benchmarks.filled import fill, on_both_databases, set_up, spread

SIZES = (1_000, 100_000)
FINISHED = ["COMPLETED"] * 9 + ["CANCELLED", "FAILED"]
NUM_ROUNDS = 200
WORKER = "bench@here"


def main() -> dict[str, Any]:
    results = on_both_databases("benchmarks.beats")
    print(f"{'milliseconds, median (p99)':28}", end="")
    for stack in results:
        for size in SIZES:
            print(f"{stack + f' {size:,}':>24}", end="")
    print()
    for duty in next(iter(results.values()))[str(SIZES[0])]:
        print(f"{duty:28}", end="")
        for each in results.values():
            for size in SIZES:
                figures = each[str(size)][duty]
                print(f"{figures['p50']:15.2f} ({figures['p99']:6.2f})", end="")
        print()
    return {"sizes": SIZES, "milliseconds": results}


def measure() -> dict[int, dict[str, dict[str, float]]]:
    set_up()
    from apps.operations.models import Operation
    from apps.operations.placement import Offer
    from apps.operations.requests import services
    from apps.operations.scheduling import claims, sweeps
    from apps.workers import registry
    from trainops.kind import KINDS

    kinds = sorted(KINDS)
    offer = Offer(kinds=kinds, memory_bytes=1, disk_bytes=1 << 60)
    registry.register(worker_id=WORKER, kinds=kinds)
    results, num_filled = {}, 0
    for size in SIZES:
        owner = fill(size - num_filled, states=FINISHED, first=num_filled)
        if not num_filled:
            for _ in range(2):
                config = {"recipe": "digits", "epochs": 2}
                services.submit(kind="training", config=config, owner=owner)
                claims.claim(worker_id=WORKER, host="here", offer=offer)
        num_filled = size
        running = Operation.objects.filter(worker_id=WORKER, state="RUNNING")
        held = list(running.values_list("pk", "attempt"))
        duties = {
            "heartbeat": lambda: registry.heartbeat(worker_id=WORKER, num_running=2),
            "renewal of two leases": lambda held=held: claims.renew(WORKER, held),
            "sweep for lost operations": lambda: sweeps.recover_lost(actor=WORKER),
            "sweep for lost messages": sweeps.send_hints,
            "look for work": lambda: claims.claim(worker_id=WORKER, host="here", offer=offer),
        }
        results[size] = {duty: _timed(work) for duty, work in duties.items()}
        if len(held) != 2:
            raise RuntimeError(f"two operations were to run, not {held}")
    return results


def _timed(work: Any) -> dict[str, float]:
    seconds = []
    for _ in range(NUM_ROUNDS):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return spread(seconds)


if __name__ == "__main__":
    print(json.dumps(measure()))
