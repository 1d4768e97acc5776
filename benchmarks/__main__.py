"""`python3 -m trainops bench [NAME …]`: measure, print a table, write JSON."""

import argparse
import json
from importlib import import_module
from pathlib import Path

NAMES = {
    "serving": "requests a second and latency with idle connections open, against others",
    "live": "delay of updates of live pages and CPU of web, with streams and with polling",
    "attacks": "what others wait for while one client attacks the web server",
    "loop": "what the loop costs per step",
    "trainers": "a step in each form of training, against other trainers; resumes in an epoch",
    "ranks": "a step of two processes, against torchrun by itself",
    "start": "from submitting to the first step, part by part",
    "commands": "CPU time of `ls` as a whole process",
    "memory": "what the web process, beat and a worker keep in memory",
    "pages": "pages with 100,000 operations, as 8 users ask for them",
    "lists": "the list API with 100,000 operations",
    "flat": "rows that PostgreSQL reads for requests, with 100,000 and 1,000,000 operations",
    "drf": "a page of the list API, against Django REST framework's ModelViewSet",
    "curves": "charts of an operation with a million points, and what packing costs",
    "beats": "heartbeats, sweeps and looks for work with 100,000 finished operations",
    "fleet": "what 300 workers with 3,000 running operations cost PostgreSQL",
    "drain": "1,000 waiting operations and two workers",
    "recovery": "from SIGKILL of a worker to computing again, part by part",
    "checkpoint": "what a checkpoint costs the loop, against others",
    "storage": "a file to a bucket and back, beside boto3",
    "incremental": "what a checkpoint writes after 10, 100 and 1,000 times the history",
    "rl": "environment steps per second with learning, against others; checkpoints; CartPole",
    "backtest": "bars per second, against others; checkpoints; length",
    "implementations": "the fast modules of RL and federated training, against the plain ones",
    "federated": "a federated round, a private step and the ledger, against others",
}
RESULTS = Path(__file__).parent / "results"


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m trainops bench",
        description="Measure the speed of trainops.",
        epilog="; ".join(f"{name}: {what}" for name, what in NAMES.items()),
    )
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], help="all, if none is given")
    return parser


def main() -> None:
    chosen = parser().parse_args().names
    RESULTS.mkdir(exist_ok=True)
    for name in chosen or NAMES:
        print(f"\n== {name}: {NAMES[name]}\n", flush=True)
        figures = import_module(f"benchmarks.{name}").main()
        (RESULTS / f"{name}.json").write_text(json.dumps(figures, indent=2, default=str) + "\n")


if __name__ == "__main__":
    main()
