"""The list API beside Django REST framework's ModelViewSet: the same rows, page size and fields.

The ModelViewSet reads owner and tags by `select_related` and `prefetch_related` and pages by
cursor, its fastest paging; with `count`, by limit and offset. Also one that returns only the stored
fields, without what our rows compute (percent, allowed actions, reasons for attention, what they
wait for). Requests take turns in one process.
"""

import json
import time
from statistics import median
from typing import Any

from benchmarks.filled import fill, on_both_databases, set_up

NUM_OPERATIONS = 100_000
NUM_ROUNDS = 60
GOAL = 5
CASES = {
    "ours": "/api/v1/operations",
    "ModelViewSet": "/drf-complete/",
    "stored fields only": "/drf/",
    "ours, count": "/api/v1/operations?count=true",
    "stored fields, count": "/drf-counted/",
}


def main() -> dict[str, Any]:
    """Measure both databases, print medians with spreads and ratios, and return them."""
    results = on_both_databases("benchmarks.drf")
    print(f"\nA page of 50 of {NUM_OPERATIONS:,} operations, ms: median (lowest to highest)")
    for stack, found in results.items():
        for case, each in found["milliseconds"].items():
            print(f"{stack:12}{case:22}{each[0]:8.1f} ({each[1]:.1f} to {each[2]:.1f})")
        ratios = ", ".join(f"{name} {ratio:.1f}" for name, ratio in found["ratios"].items())
        print(f"{stack:12}ModelViewSet to ours: {ratios} (goal {GOAL})")
    return results


def measure() -> dict[str, Any]:
    """Fill this process's database, then time every case in turns."""
    set_up()
    from django.test import Client, override_settings

    client = Client()
    client.force_login(fill(NUM_OPERATIONS))
    seconds: dict[str, list[float]] = {case: [] for case in CASES}
    with override_settings(ROOT_URLCONF="benchmarks.drf_urls"):
        for number in range(NUM_ROUNDS + 1):
            for case, address in CASES.items():
                began = time.perf_counter()
                response = client.get(address)
                elapsed = time.perf_counter() - began
                if response.status_code != 200:
                    raise RuntimeError(f"{address}: {response.status_code}")
                if number:  # the first round warms up
                    seconds[case].append(elapsed)
    found = {
        case: [round(1e3 * each, 2) for each in (median(mine), min(mine), max(mine))]
        for case, mine in seconds.items()
    }
    ratios = {
        "page": found["ModelViewSet"][0] / found["ours"][0],
        "stored fields only": found["stored fields only"][0] / found["ours"][0],
        "these with count": found["stored fields, count"][0] / found["ours, count"][0],
    }
    return {"milliseconds": found, "ratios": ratios}


if __name__ == "__main__":
    print(json.dumps(measure()))
