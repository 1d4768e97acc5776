"""What a checkpoint writes when much has happened before it, beside writing all of it again.

A state of a model that changes (1 MB), a best model that stays (1 MB) and an equity curve of three
columns, to which every checkpoint adds the same number of bars. Goal: what is written follows the
new bars, with 10, 100 and 1,000 times the history.
"""

import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from trainops.runtime.checkpoint.snapshot import SafePoint, StatePosition
from trainops.runtime.checkpoint.store import CheckpointStore, CheckpointType
from trainops.runtime.checkpoint.stream import Stream
from trainops.runtime.job import StateDict

NEW_BARS = 10_000
HISTORIES = (1, 10, 100, 1000)  # times the new bars
NUM_CHECKPOINTS = 64
COLUMNS = dict.fromkeys(("equity", "cash", "drawdown"), (torch.float64, ()))


def main() -> dict[str, Any]:
    results: dict[str, dict[str, Any]] = {}
    print(f"{NUM_CHECKPOINTS} checkpoints after each history, {NEW_BARS:,} new bars each\n")
    print(
        f"{'bars before':>12}{'state, MB':>11}{'written, kB: mean':>19}{'most':>8}"
        f"{'files':>7}{'freeze, ms':>12}{'write, ms':>11}{'torch.save, kB':>16}{'ms':>8}"
    )
    for times in HISTORIES:
        results[str(times)] = found = measure(times * NEW_BARS)
        print(
            f"{times * NEW_BARS:12,}{found['state_bytes'] / 1e6:11.1f}"
            f"{found['written_bytes_mean'] / 1e3:19,.0f}{found['written_bytes_most'] / 1e3:8,.0f}"
            f"{found['files']:7}{found['freeze_ms']:12.2f}{found['write_ms']:11.1f}"
            f"{found['torch_save_bytes'] / 1e3:16,.0f}{found['torch_save_ms']:8.1f}"
        )
    return {"new_bars": NEW_BARS, "checkpoints": NUM_CHECKPOINTS, "by_history": results}


def measure(num_bars: int) -> dict[str, Any]:
    """Return medians over the checkpoints after a history of N bars."""
    state = _state(num_bars)
    safe_point = SafePoint(clock=time.monotonic, share=0.005)
    written, freezes, writes = [], [], []
    with tempfile.TemporaryDirectory(prefix="trainops-bench-") as directory:
        store = CheckpointStore(Path(directory), identity={"operation_id": "bench"})
        before = None
        for step in range(NUM_CHECKPOINTS + 1):
            _advance(state)
            began = time.perf_counter()
            safe_point.take(StatePosition(step), lambda: state)
            frozen = time.perf_counter()
            checkpoint = store.write(
                CheckpointType.PERIODIC,
                step=step,
                state=safe_point.state,
                changed=safe_point.changes(),
            )
            ended = time.perf_counter()
            if before is not None:  # the first one is whole
                written.append(checkpoint.written_bytes)
                freezes.append(frozen - began)
                writes.append(ended - frozen)
                shutil.rmtree(before)
            before = checkpoint.path
        whole_bytes, whole_seconds = _torch_save(state, Path(directory) / "whole.pt")
    return {
        "state_bytes": checkpoint.size_bytes,
        "written_bytes_mean": statistics.mean(written),
        "written_bytes_most": max(written),
        "files": len(checkpoint.artifacts),
        "freeze_ms": statistics.median(freezes) * 1e3,
        "write_ms": statistics.median(writes) * 1e3,
        "write_ms_most": max(writes) * 1e3,
        "torch_save_bytes": whole_bytes,
        "torch_save_ms": whole_seconds * 1e3,
    }


def _state(num_bars: int) -> StateDict:
    equity = Stream(COLUMNS)
    for first in range(0, num_bars, NEW_BARS):
        equity.append(_bars(min(NEW_BARS, num_bars - first)))
    return {
        "state": {},
        "model": {"weight": torch.randn(512, 512)},
        "best_model": {"weight": torch.randn(512, 512)},
        "equity": equity,
    }


def _advance(state: StateDict) -> None:
    state["model"]["weight"].add_(1e-3)
    state["equity"].append(_bars(NEW_BARS))


def _bars(number: int) -> dict[str, torch.Tensor]:
    return {name: torch.rand(number, dtype=torch.float64) for name in COLUMNS}


def _torch_save(state: StateDict, path: Path) -> tuple[int, float]:
    """Return the bytes and the median seconds of saving the same state whole."""
    equity = {name: state["equity"].column(name) for name in COLUMNS}
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        torch.save(state | {"equity": equity}, path)
        seconds.append(time.perf_counter() - began)
    return path.stat().st_size, statistics.median(seconds)
