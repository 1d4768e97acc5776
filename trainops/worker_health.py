"""Whether the worker processes of this user are alive: `python -m trainops.worker_health`.

Each worker writes one small file whenever it renews its leases; the probe reads these files and
nothing else, so an outage of the database restarts no container. Standard library only: it
runs every few seconds.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from trainops import process_identity


def tell(*, worker_id: str, status: str, current_operation: str, valid_seconds: float) -> None:
    """Write this worker's heartbeat, which is valid for `valid_seconds`.

    Raises OSError.
    """
    path = _path(worker_id)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if path.parent.stat().st_uid != os.getuid():
        raise PermissionError(f"{path.parent} belongs to another user")
    told = {
        "worker_id": worker_id,
        "worker_status": status,
        "current_operation": current_operation or None,
        "timestamp": time.time(),
        "valid_seconds": valid_seconds,
        "process": process_identity.identity(),
    }
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(told))
    draft.replace(path)


def forget(worker_id: str) -> None:
    """Remove what a worker that leaves has written."""
    _path(worker_id).unlink(missing_ok=True)


def check() -> dict[str, Any]:
    """Return the state of every worker process that has not ended, and whether all are healthy.

    Healthy: there is at least one, and no heartbeat is overdue.
    """
    workers = [_judged(told) for told in _told()]
    healthy = bool(workers) and all(each["healthy"] for each in workers)
    return {"healthy": healthy, "timestamp": time.time(), "workers": workers}


def _judged(told: dict[str, Any]) -> dict[str, Any]:
    shown = ("worker_id", "worker_status", "current_operation", "timestamp")
    is_fresh = time.time() - told["timestamp"] <= told["valid_seconds"]
    return {"healthy": is_fresh, **{name: told[name] for name in shown}}


def _told() -> Iterator[dict[str, Any]]:
    for path in sorted(_directory().glob("*.json")):
        with suppress(OSError, ValueError):
            told = json.loads(path.read_text())
            if not process_identity.has_ended(told["process"]):
                yield told


def _directory() -> Path:
    return Path(tempfile.gettempdir()) / f"trainops-workers-{os.getuid()}"


def _path(worker_id: str) -> Path:
    return _directory() / f"{worker_id.replace('/', '_')}.json"


def main() -> None:
    found = check()
    sys.stdout.write(f"{json.dumps(found)}\n")
    sys.exit(0 if found["healthy"] else 1)


if __name__ == "__main__":
    main()
