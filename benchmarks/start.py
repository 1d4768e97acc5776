"""From submitting an operation to its first step on a warm worker, against a process started cold.

Goal: under half a second. The child is forked from a process that has torch imported already; a
cold one imports it first. Both train the same small model, in the same run, in turns.
"""

import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from tests.journey.stack import ROOT, Stack, running

GOAL_SECONDS = 0.5
ROUNDS = 9
CONFIG = {"recipe": "digits", "epochs": 1}
COLD = """
from trainops.runtime import reproducibility
from trainops.kind import KINDS
engine = KINDS["training"]
config = engine.parse_config({"recipe": "digits", "epochs": 1})
reproducibility.seed_all(0)
engine.make_job(config, {}).advance()
"""
PARTS = {
    "request": "POST answered (validated, written down)",
    "claim": "row written → claimed (message, claim)",
    "child": "claimed → child forked",
    "restored": "child → job made, state restored",
    "first step": "→ first step done and reported",
    "total": "POST sent → first step",
    "cold": "a cold process: imports → first step",
}


def main() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory, running(Path(directory) / "var") as stack:
        _measure(stack)  # the very first waits for the forkserver to warm up
        rounds = [_measure(stack) | {"cold": _cold()} for _ in range(ROUNDS)]
    figures = {part: [each[part] for each in rounds] for part in PARTS}
    print(f"{'part':<44}{'median':>9}{'min':>9}{'max':>9}   seconds, {ROUNDS} rounds")
    for part, explanation in PARTS.items():
        values = figures[part]
        print(f"{explanation:<44}{median(values):>9.3f}{min(values):>9.3f}{max(values):>9.3f}")
    total = median(figures["total"])
    print(f"\ngoal {GOAL_SECONDS} s: {'met' if total < GOAL_SECONDS else 'missed'} ({total:.3f} s)")
    return {"seconds": figures, "goal_seconds": GOAL_SECONDS}


def _measure(stack: Stack) -> dict[str, float]:
    began = time.time()
    operation_id = stack.submit(**CONFIG)
    answered = time.time()
    operation = stack.wait(operation_id, "COMPLETED")
    timings = stack.get(f"operations/{operation_id}/attempts")[0]["timings"]
    claimed = _moment(operation["started_at"])
    parts = {
        "request": answered - began,
        "claim": claimed - _moment(operation["created_at"]),
        "child": timings["child"],
        "restored": timings["restored"],
        "first step": timings["first_step"] - timings["restored"],
    }
    total = claimed - began + timings["child"] + timings["first_step"]
    return parts | {"total": total}


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _cold() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", COLD], cwd=ROOT, check=True)
    return time.perf_counter() - began
