"""Bars per second of a backtest, beside those of others; and what checkpoints and length cost.

The rule is a crossover of two simple averages with commission, long or flat, filled at the next
open. All run over the same bars, in turns as far as they can: what an
engine does once (reading the table, computing the averages) is part of its time, importing and
compiling are not, and are shown apart. Others run in this environment where they are installed
in it, else in that of the Python interpreter that TRAINOPS_BENCH_PEERS names.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.loop import Silent
from trainops.kind import KINDS
from trainops.kinds.backtest.config import BacktestConfig
from trainops.kinds.backtest.job import BacktestJob, load_prices
from trainops.market.prices import Prices
from trainops.runtime.checkpoint.manifest import Checkpoint
from trainops.runtime.checkpoint.store import CheckpointPolicy, CheckpointStore
from trainops.runtime.loop import Succeeded, run

DATASET = "ds_0123456789abcdef"
NUM_BARS, ROUNDS = 1_000_000, 5
LENGTHS = (10_000, 100_000, 1_000_000, 10_000_000)
FAST, SLOW, COMMISSION = 20, 60, 0.0005
NOT_INSTALLED = 3
PEERS = {"vectorbt": NUM_BARS, "backtesting.py": NUM_BARS, "backtrader": NUM_BARS // 20}
GOALS = {
    "vectorbt": ("vector, from memory", 5),
    "backtesting.py": ("event, from memory", 8),
    "backtrader": ("event, from memory", 100),
}
Spread = tuple[float, float, float]  # lowest, median, highest


def walk(num_bars: int) -> dict[str, Any]:
    """Return bars of a random walk, one a minute."""
    rng = np.random.default_rng(1)
    close = 100 * np.exp(np.cumsum(rng.normal(0, 1e-4, num_bars)))
    open_ = np.append(close[0], close[:-1])
    return {
        "time": np.arange(num_bars) * np.timedelta64(60_000_000, "us")
        + np.datetime64("2000-01-01"),
        "open": open_,
        "high": np.maximum(open_, close) * 1.0001,
        "low": np.minimum(open_, close) * 0.9999,
        "close": close,
    }


def config(**more: Any) -> dict[str, Any]:
    return {
        "recipe": "sma_crossover",
        "dataset": DATASET,
        "parameters": {"fast": FAST, "slow": SLOW, "direction": "long"},
        "commission": {"relative": COMMISSION},
        "cash": 1e6,
        "finish": "open",
        **more,
    }


def ours(path: Path, execution: str, *, prices: Prices | None = None) -> tuple[float, float]:
    """Return seconds and the final equity of a run without checkpoints.

    Reading and checking the table is part of it, unless the prices are in memory.
    """
    began = time.perf_counter()
    asked = BacktestConfig.parse(config(execution=execution))
    job = BacktestJob(asked, {DATASET: path}, prices=prices)
    while job.step < job.total_steps:
        job.advance()
    seconds = time.perf_counter() - began
    return seconds, float(job.result()["final_equity"])


class Counting(Silent):
    """Counts checkpoints."""

    def __init__(self) -> None:
        self.count = 0

    def checkpointed(self, checkpoint: Checkpoint) -> None:
        self.count += 1


def looped(path: Path, root: Path, execution: str, **checkpoint: float) -> tuple[float, int]:
    """Return seconds of a run by the loop, the final checkpoint included, and how many it took."""
    engine = KINDS["backtest"]
    asked = config(execution=execution, checkpoint=checkpoint, chunk_bars=10_000)
    parsed = engine.parse_config(asked)
    job = engine.make_job(parsed, {DATASET: path})
    supervisor = Counting()
    with tempfile.TemporaryDirectory(dir=root) as directory:
        began = time.perf_counter()
        outcome = run(
            lambda: job,
            seed=0,
            store=CheckpointStore(Path(directory), identity={"operation_id": "bench"}),
            policy=CheckpointPolicy(
                every_seconds=3600.0, least_seconds=parsed.checkpoint.least_seconds
            ),
            supervisor=supervisor,
            safe_point_share=0.0,
        )
        seconds = time.perf_counter() - began
    assert isinstance(outcome, Succeeded), outcome  # noqa: S101
    return seconds, supervisor.count


def peer(name: str, path: Path, num_bars: int) -> dict[str, Any] | None:
    """Return what another library says of the same bars, or None where it is not installed."""
    script = Path(__file__).parent / "peers.py"
    for python in (sys.executable, os.environ.get("TRAINOPS_BENCH_PEERS")):
        if python is None:
            continue
        done = subprocess.run(
            [python, script, name, path.with_suffix(".npz"), str(num_bars)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
            return found
        if done.returncode != NOT_INSTALLED:
            raise RuntimeError(f"{name}: {done.stderr[-2000:]}")
    return None


def main() -> dict[str, Any]:
    """Print the tables, and return their figures."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        path = root / "bars.parquet"
        bars = walk(NUM_BARS)
        pq.write_table(pa.table(bars), path)
        np.savez(path.with_suffix(".npz"), **bars)
        return {
            "name": "backtest",
            "bars": NUM_BARS,
            "speed": speed(path),
            "lengths": lengths(root),
            "checkpoints": checkpoints(root),
        }


def speed(path: Path) -> dict[str, Any]:
    began = time.perf_counter()
    for execution in ("vector", "event"):
        ours(path, execution)  # compiles, or loads what was compiled
    warm_up = time.perf_counter() - began
    rows: dict[str, Any] = {}
    for _ in range(ROUNDS):  # in turns, so that a busy machine disturbs all alike
        for name, row in (own_round(path) | peer_round(path)).items():
            known = rows.setdefault(name, {**row, "seconds": []})
            known["seconds"] += row["seconds"]
    print(f"SMA {FAST}/{SLOW} crossover with commission; bars/s")
    for name, row in rows.items():
        row["bars_per_second"] = spread([row["bars"] / seconds for seconds in row["seconds"]])
        low, middle, high = row["bars_per_second"]
        print(
            f"{name:<28} {row['bars']:>9,} bars {middle:13,.0f} ({low:,.0f} to {high:,.0f})"
            f"  equity {row['equity']:.2f}"
        )
    print(f"two first runs, in which numba compiles or loads what it compiled: {warm_up:.1f} s")
    compare(rows)
    return {"rows": rows, "warm_up_seconds": warm_up}


def compare(rows: Mapping[str, Any]) -> None:
    for name, (form, goal) in GOALS.items():
        if name in rows:
            factor = rows[form]["bars_per_second"][1] / rows[name]["bars_per_second"][1]
            print(f"{form}: {factor:.1f} times {name} (goal {goal})")
        else:
            print(f"{name} is not installed here")


def own_round(path: Path) -> dict[str, Any]:
    prices = load_prices(BacktestConfig.parse(config()), {DATASET: path})
    rows: dict[str, Any] = {}
    for execution in ("vector", "event"):
        for name, known in ((execution, None), (f"{execution}, from memory", prices)):
            seconds, equity = ours(path, execution, prices=known)
            rows[name] = {"seconds": [seconds], "equity": equity, "bars": NUM_BARS}
    return rows


def peer_round(path: Path) -> dict[str, Any]:
    found = {name: peer(name, path, num_bars) for name, num_bars in PEERS.items()}
    return {name: row for name, row in found.items() if row is not None}


def checkpoints(root: Path) -> dict[str, Any]:
    """Compare runs with a checkpoint every 10,000 bars and with none but the last, in turns.

    By default at least a second lies between two of them; without it as many are taken as can be,
    one in flight at a time.
    """
    policies: dict[str, dict[str, float]] = {
        "none": {"every_bars": 10**9},
        "10,000 bars": {"every_bars": 10_000},
        "10,000 bars, 0 s": {"every_bars": 10_000, "least_seconds": 0.0},
    }
    path = root / f"{LENGTHS[-1]}.parquet"  # long enough for several
    found: dict[str, Any] = {}
    for execution in ("vector", "event"):
        for _ in range(ROUNDS):
            for name, policy in policies.items():
                taken = looped(path, root, execution, **policy)
                found.setdefault(f"{execution}, {name}", []).append(taken)
    for name, taken in found.items():
        low, middle, high = spread([seconds for seconds, _ in taken])
        counts = sorted(count for _, count in taken)
        print(f"checkpoints, {name:<24} {middle:.3f} s ({low:.3f} to {high:.3f}), {counts} taken")
    return found


def lengths(root: Path) -> dict[str, Any]:
    """Return nanoseconds a bar from ten thousand to ten million bars, the reading included."""
    found: dict[str, Any] = {}
    for num_bars in LENGTHS:
        path = root / f"{num_bars}.parquet"
        pq.write_table(pa.table(walk(num_bars)), path)
        for execution in ("vector", "event"):
            timed = [ours(path, execution)[0] for _ in range(3)]
            nanoseconds = spread([seconds / num_bars * 1e9 for seconds in timed])
            found[f"{execution} {num_bars}"] = nanoseconds
            low, middle, high = nanoseconds
            print(
                f"{execution:<7} {num_bars:>11,} bars {middle:9.0f} ns/bar ({low:.0f}-{high:.0f})"
            )
    return found


def spread(values: list[float]) -> Spread:
    return min(values), median(values), max(values)


if __name__ == "__main__":
    main()
