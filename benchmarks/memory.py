"""Memory of each process; only the forkserver of a worker and its children load torch."""

import tempfile
from pathlib import Path
from typing import Any

import psutil

from tests.journey.stack import Stack, running

PROCESSES = {
    "web": "trainops.web",
    "beat": " beat",
    "worker": " worker",
    "forkserver": "trainops.process.forkserver",
}
ATTEMPTS = 3  # an attempt before measuring, so that everything lazy is loaded


def main() -> dict[str, Any]:
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory, running(Path(directory) / "var") as stack:
        for _ in range(ATTEMPTS):
            operation_id = stack.submit(recipe="digits", epochs=1)
            stack.wait(operation_id, "COMPLETED")
            stack.get("operations")
        for name, word in PROCESSES.items():
            figures[name] = _of(stack, word)
    print(f"{'process':<12}{'private MB':>12}{'resident MB':>13}   torch")
    for name, each in figures.items():
        print(
            f"{name:<12}{each['private_mb']:>12.0f}{each['resident_mb']:>13.0f}   "
            f"{'loaded' if each['torch'] else 'not loaded'}"
        )
    return figures


def _of(stack: Stack, word: str) -> dict[str, Any]:
    processes = stack.processes(word)
    memory = [process.memory_full_info() for process in processes]
    return {
        "private_mb": sum(each.uss for each in memory) / 1e6,
        "resident_mb": sum(each.rss for each in memory) / 1e6,
        "torch": any(_has_torch(process) for process in processes),
    }


def _has_torch(process: psutil.Process) -> bool:
    return any("libtorch" in each.path for each in process.memory_maps())
