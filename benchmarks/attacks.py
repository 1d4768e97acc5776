"""What another client waits for while one client attacks the server, attack by attack.

/api/v1/health, the list and the live data of a running operation are asked for in turn. The goals:
0.5 seconds (99th percentile), 400 MiB of memory, 100 MiB of temporary files.
"""

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.filled import spread

SECONDS, SECONDS_OF_ALL = 10, 60


def main() -> dict[str, Any]:
    """Measure, print a table, and return milliseconds and MiB by attack."""
    from tests.gateway.attacks import ATTACKS
    from tests.gateway.measuring import attack, inhabited

    attacks = {"none": []} | {name: [name] for name in ATTACKS} | {"all at once": [*ATTACKS]}
    results = {}
    print(f"{'attack':32}{'requests':>9}{'p50 ms':>9}{'p99 ms':>9}{'memory':>9}{'files':>9}")
    for name, chosen in attacks.items():
        with (
            tempfile.TemporaryDirectory() as directory,
            inhabited(Path(directory) / "var") as stack,
        ):
            seconds = SECONDS_OF_ALL if name == "all at once" else SECONDS
            measured = attack(stack, chosen, seconds)
        results[name] = {
            "requests": len(measured.seconds),
            **spread([each for each, _ in measured.seconds]),
            "memory_mib": measured.memory >> 20,
            "files_mib": measured.temporary >> 20,
        }
        figures = "".join(f"{round(figure):9}" for figure in results[name].values())
        print(f"{name:32}{figures}", flush=True)
    return results
