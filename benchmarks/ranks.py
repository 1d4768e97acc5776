"""What a step of two processes costs, beside torchrun's DistributedDataParallel by itself.

The same network, batches and optimizer, two gloo ranks of one thread each on this machine. Both
contenders take turns in new processes; rank 0 measures the steps after those that warm up.
"""

import os
import subprocess
import sys
from statistics import median
from typing import Any

NUM_RANKS, ROUNDS = 2, 5
WIDTHS = 512, 1024  # of the layers
GOAL = 1.02
TRAINING = "benchmarks.rank_training"
TORCHRUN = "torch.distributed.run", "--standalone", f"--nproc-per-node={NUM_RANKS}", "-m"
CONTENDERS = {"torchrun": [*TORCHRUN, TRAINING, "torchrun"], "loop": [TRAINING, "loop"]}


def main() -> dict[str, Any]:
    print(f"Goal: at most {GOAL:.2f}x")
    return {"goal": GOAL, "of_width": {width: _compared(width) for width in WIDTHS}}


def _compared(width: int) -> dict[str, Any]:
    found: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    for _ in range(ROUNDS):
        for name, arguments in CONTENDERS.items():
            found[name].append(_microseconds(arguments, width))
    bare = median(found["torchrun"])
    print(
        f"\nMicroseconds a step of {NUM_RANKS} ranks, layers of {width}, {ROUNDS} rounds in turns"
    )
    print(f"{'':12}{'median':>9}{'lowest':>9}{'highest':>9}{'beside torchrun':>17}")
    for name, each in found.items():
        middle = median(each)
        print(f"{name:12}{middle:9.0f}{min(each):9.0f}{max(each):9.0f}{middle / bare:16.3f}x")
    return {"microseconds": found, "ratio": median(found["loop"]) / bare}


def _microseconds(arguments: list[str], width: int) -> float:
    """Return what rank 0 prints at last. Raises CalledProcessError, with its errors printed."""
    environment = os.environ | {
        "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "BENCH_WIDTH": str(width),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", *arguments], env=environment, stdout=subprocess.PIPE, check=True
    )
    return float(done.stdout.split()[-1])
