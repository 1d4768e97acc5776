"""The list API with 100 000 operations, on SQLite and on PostgreSQL: median and 99th percentile.

Each stack is measured in a process of its own, through the whole of Django (middleware, session,
role, view, JSON), without a network in between. Requests of all cases take turns, so that a busy
machine disturbs all of them alike.
"""

import json
import time
from typing import Any

from benchmarks.filled import fill, on_both_databases, set_up, spread

NUM_OPERATIONS = 100_000
NUM_ROUNDS = 200

CASES = {
    "first page": "/api/v1/operations",
    "a page in the middle": "/api/v1/operations?created_before={middle}",
    "one page of 500": "/api/v1/operations?limit=500",
    "state=FAILED": "/api/v1/operations?state=FAILED",
    "owner": "/api/v1/operations?owner=rare",
    "tag": "/api/v1/operations?tag=rare",
    "resumable": "/api/v1/operations?resumable=true",
    "search, found": "/api/v1/operations?search=number+50000",
    "search, not found": "/api/v1/operations?search=nothing+like+it",
    "with a count": "/api/v1/operations?count=true",
    "one operation": "/api/v1/operations/{one}",
    "live": "/api/v1/operations/{one}/live?points_after=0&events_after=0&log_after=0",
    "admin list": "/admin/operations/operation/",
}


def main() -> dict[str, Any]:
    """Measure both stacks, print one table, and return milliseconds by stack and case."""
    results = on_both_databases("benchmarks.lists")
    _print(results)
    return {"num_operations": NUM_OPERATIONS, "milliseconds": results}


def _print(results: dict[str, Any]) -> None:
    print(f"\nList API with {NUM_OPERATIONS:,} operations, milliseconds a request")
    print(f"{'':24}" + "".join(f"{f'{stack} p50':>18}{'p99':>9}" for stack in results))
    for case in CASES:
        figures = "".join(
            f"{each[case]['p50']:18.2f}{each[case]['p99']:9.2f}" for each in results.values()
        )
        print(f"{case:24}{figures}")


def measure() -> dict[str, dict[str, float]]:
    """Fill this process's database, then time every case."""
    set_up()
    from django.test import Client

    client = Client()
    client.force_login(fill(NUM_OPERATIONS))
    places = _places()
    addresses = {case: address.format(**places) for case, address in CASES.items()}
    seconds: dict[str, list[float]] = {case: [] for case in CASES}
    for number in range(NUM_ROUNDS + 1):
        for case, address in addresses.items():
            began = time.perf_counter()
            response = client.get(address)
            elapsed = time.perf_counter() - began
            if response.status_code != 200:
                raise RuntimeError(f"{address}: {response.status_code} {response.content[:200]!r}")
            if number:  # the first round warms up
                seconds[case].append(elapsed)
    return {case: spread(each) for case, each in seconds.items()}


def _places() -> dict[str, str]:
    from apps.operations.models import Operation

    middle = Operation.objects.get(name=f"operation number {NUM_OPERATIONS // 2}")
    return {"one": middle.pk, "middle": middle.created_at.strftime("%Y-%m-%dT%H:%M:%SZ")}


if __name__ == "__main__":
    print(json.dumps(measure()))
