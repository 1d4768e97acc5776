"""CPU time of `ls` as a whole process: imports, one request, a table of 20 operations.

Goal: under 0.25 s. The server is a thread of this process that returns a fixed list; its time is
not counted.
"""

import json
import os
import resource
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from statistics import median
from threading import Thread
from typing import Any

from trainops.paths import ROOT

GOAL_SECONDS = 0.25
ROUNDS = 15
COMMANDS = {
    "client": "from trainops.cli import main; main(['ls'])",
    "server": "from trainops.__main__ import run; run()",
    "parsed by Typer": "from trainops.cli.app import build; build('ls')(args=['ls'])",
}
EXPLANATIONS = {
    "client": "trainops ls (trainops-client)",
    "server": "python3 -m trainops ls (a clone, or the server's package)",
    "parsed by Typer": "the same as the first, parsed by Typer",
}
ROWS = [
    {
        "id": f"op_training_20260101_000000_{number:06x}",
        "operation_id": f"op_training_20260101_000000_{number:06x}",
        "name": f"Operation {number}",
        "kind": "training",
        "status": "RUNNING",
        "state": "RUNNING",
        "created_at": "2026-01-01T00:00:00Z",
        "percent": 45.0,
        "place": "epoch 3 of 20",
        "monitor": "val_loss",
        "metrics": {"val_loss": 0.1234, "train_loss": 0.2, "epoch": 3},
        "eta_seconds": 300.0,
        "owner": "ana",
    }
    for number in range(20)
]
BODY = json.dumps({"success": True, "data": ROWS, "next": None, "total_count": 20}).encode()


class _Listing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, *_: object) -> None:
        pass


def main() -> dict[str, Any]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Listing) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        for program in COMMANDS.values():
            _seconds(program, url)  # writes the bytecode
        rounds = [
            {name: _seconds(program, url) for name, program in COMMANDS.items()}
            for _ in range(ROUNDS)
        ]
        server.shutdown()
    figures = {name: [each[name] for each in rounds] for name in COMMANDS}
    print(f"{'CPU seconds of `ls`':<60}{'median':>9}{'min':>9}{'max':>9}   {ROUNDS} rounds")
    for name, values in figures.items():
        explanation = EXPLANATIONS[name]
        print(f"{explanation:<60}{median(values):>9.3f}{min(values):>9.3f}{max(values):>9.3f}")
    slowest = max(median(figures[name]) for name in ("client", "server"))
    verdict = "met" if slowest < GOAL_SECONDS else "missed"
    print(f"\ngoal {GOAL_SECONDS} s: {verdict} ({slowest:.3f} s)")
    return {"seconds": figures, "goal_seconds": GOAL_SECONDS}


def _seconds(program: str, url: str) -> float:
    """Return the CPU time, user and system, of one process that lists the operations."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-c", program, "ls"],
        env={**os.environ, "TRAINOPS_URL": url, "TRAINOPS_TOKEN": "none"},
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
