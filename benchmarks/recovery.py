"""From SIGKILL of a worker to its operation computing again on another, part by part.

Most of it is waiting on purpose: for the lease to run out, and before a restart. Both are
settings; measured as they are by default, and as the tests shorten them.
"""

import tempfile
import time
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from tests.journey.stack import QUICK, Stack, running
from tests.waiting import wait_until
from trainops.thresholds import Thresholds

CONFIG = {
    "recipe": "scripted",
    "parameters": {"step_seconds": 0.02},
    "epochs": 100_000,
    "batch_size": 16,
    "checkpoint": {"every_steps": 25},
}
RECIPES = {"TRAINOPS_RECIPES": "tests.recipes.scripted:RECIPE"}
PARTS = {
    "noticed": "killed → noticed by a sweep (the lease, and the sweep's interval)",
    "claimed": "noticed → claimed by another worker (the restart's pause)",
    "child": "claimed → child forked",
    "restored": "child → checkpoint verified and restored",
    "first step": "→ first new step done and reported",
    "total": "killed → computing again",
}


def main() -> dict[str, Any]:
    defaults = {f"TRAINOPS_{name}": str(getattr(Thresholds(), name.lower())) for name in QUICK}
    figures = {"shortened": _rounds(3, {}), "default": _rounds(1, defaults)}
    for settings, rounds in figures.items():
        print(f"\n{settings} settings, seconds: median (lowest to highest), {len(rounds)} rounds")
        for part, explanation in PARTS.items():
            values = [each[part] for each in rounds]
            print(
                f"{explanation:<68}{median(values):9.3f} ({min(values):.3f} to {max(values):.3f})"
            )
    return {"seconds": figures}


def _rounds(num_rounds: int, settings: dict[str, str]) -> list[dict[str, float]]:
    with tempfile.TemporaryDirectory() as directory:
        data_dir = Path(directory) / "var"
        with running(data_dir, workers=2, **RECIPES, **settings) as stack:
            return [_measure(stack) for _ in range(num_rounds)]


def _measure(stack: Stack) -> dict[str, float]:
    wait_until(lambda: len(_available(stack)) >= 2, 120)
    operation_id = stack.submit(**CONFIG)
    stack.wait_step(operation_id, 60)
    worker = psutil.Process(stack.child_pid(operation_id)).parents()[1]
    killed_at = time.time()
    worker.kill()
    wait_until(lambda: (stack.look(f"operations/{operation_id}") or {}).get("attempt") == 2, 180)
    timings = wait_until(lambda: _timings(stack, operation_id), 60)
    stack.post(f"operations/{operation_id}/kill")
    stack.wait(operation_id, "CANCELLED")
    moved = {
        each["what"]: datetime.fromisoformat(each["at"]).timestamp()
        for each in stack.get(f"operations/{operation_id}/events", limit=500)[::-1]
    }
    parts = {
        "noticed": moved["RESUMING"] - killed_at,
        "claimed": moved["RUNNING"] - moved["RESUMING"],
        "child": timings["child"],
        "restored": timings["restored"],
        "first step": timings["first_step"] - timings["restored"],
    }
    return parts | {"total": sum(parts.values())}


def _available(stack: Stack) -> list[str]:
    return [each["worker_id"] for each in stack.get("workers") if each["status"] == "AVAILABLE"]


def _timings(stack: Stack, operation_id: str) -> Any:
    timings = stack.get(f"operations/{operation_id}/attempts")[0]["timings"]
    return timings if "first_step" in timings else None
