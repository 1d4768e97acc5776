"""1,000 waiting operations and two workers: what scheduling costs each, beside its own work.

Goal: a few milliseconds each. The workers drain while the operations are submitted, then both
start at once. Between the end of one attempt and the begin of the next on the same worker lie its
last writes, the claim among a thousand and nothing else; both moments are the database's.
"""

import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.filled import spread
from tests.journey.stack import Stack, running
from tests.waiting import wait_until

NUM_OPERATIONS = 1_000
CONFIG = {"recipe": "scripted", "parameters": {"step_seconds": 0}, "epochs": 1}
RECIPES = {"TRAINOPS_RECIPES": "tests.recipes.scripted:RECIPE"}
STACKS = {"embedded": (), "postgresql": ("--postgres",)}


def main() -> dict[str, Any]:
    figures = {}
    for name, options in STACKS.items():
        with tempfile.TemporaryDirectory() as directory:
            data_dir = Path(directory) / "var"
            with running(data_dir, *options, workers=2, **RECIPES) as stack:
                figures[name] = each = _measure(stack)
        between = each["between two attempts of a worker"]
        print(
            f"{name}: {NUM_OPERATIONS:,} operations in {each['seconds']:.1f} s, "
            f"{each['each worker a second']:.1f} a second each worker; between two attempts "
            f"{between['p50']:.1f} ms (p99 {between['p99']:.1f})",
            flush=True,
        )
    return {"num_operations": NUM_OPERATIONS, "stacks": figures}


def _measure(stack: Stack) -> dict[str, Any]:
    workers = wait_until(lambda: _workers(stack), 60)
    stack.wait(stack.submit(**CONFIG), "COMPLETED")  # nurseries are warm
    for worker in workers:
        stack.post(f"workers/{worker}/drain")
    with ThreadPoolExecutor(4) as submitting:
        list(submitting.map(lambda _: stack.submit(**CONFIG), range(NUM_OPERATIONS)))
    began = time.monotonic()
    for worker in workers:
        stack.post(f"workers/{worker}/undrain")
    wait_until(lambda: not stack.get("operations", state="PENDING,RUNNING", limit=1), 1800)
    seconds = time.monotonic() - began
    return {
        "seconds": seconds,
        "each worker a second": NUM_OPERATIONS / seconds / len(workers),
        "between two attempts of a worker": spread(_pauses(stack)),
    }


def _workers(stack: Stack) -> list[str]:
    known = [each["worker_id"] for each in stack.get("workers")]
    return known if len(known) == 2 else []


def _pauses(stack: Stack) -> list[float]:
    """Return the seconds between one attempt's end and the next one's begin, in each slot."""
    by_worker = defaultdict(list)
    for each in _operations(stack):
        if each["state"] != "COMPLETED":
            raise RuntimeError(f"{each['id']} is {each['state']}")
        (attempt,) = stack.get(f"operations/{each['id']}/attempts")
        span = _moment(attempt["started_at"]), _moment(attempt["ended_at"])
        by_worker[attempt["worker_id"]].append(span)
    pauses = []
    for spans in by_worker.values():
        spans.sort()
        pauses += [then - end for (_, end), (then, _) in pairwise(spans)]
    return pauses


def _operations(stack: Stack) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    before: dict[str, str] = {}
    while page := stack.get("operations", limit=500, **before):
        rows += page
        before = {"created_before": page[-1]["created_at"]}
    return rows[:NUM_OPERATIONS]


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
