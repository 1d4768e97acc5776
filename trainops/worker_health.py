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
from typing import TypedDict

from trainops import process_identity
from trainops.process_identity import ProcessIdentity


class Heartbeat(TypedDict):
    """What a worker process is doing, by its last heartbeat."""

    worker_id: str
    worker_status: str
    current_operation: str | None
    timestamp: float


class StatusFile(Heartbeat):
    """The content of a worker's file."""

    valid_seconds: float
    process: ProcessIdentity


class WorkerHealth(Heartbeat):
    """One worker process in the answer of the probe."""

    healthy: bool


class HealthReport(TypedDict):
    """The answer of the probe."""

    healthy: bool
    timestamp: float
    workers: list[WorkerHealth]


def tell(*, worker_id: str, status: str, current_operation: str, valid_seconds: float) -> None:
    """Write this worker's heartbeat, which is valid for `valid_seconds`.

    Raises OSError.
    """
    path = _path(worker_id)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if path.parent.stat().st_uid != os.getuid():
        raise PermissionError(f"{path.parent} belongs to another user")
    status_file: StatusFile = {
        "worker_id": worker_id,
        "worker_status": status,
        "current_operation": current_operation or None,
        "timestamp": time.time(),
        "valid_seconds": valid_seconds,
        "process": process_identity.identity(),
    }
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(status_file))
    draft.replace(path)


def forget(worker_id: str) -> None:
    """Remove what a worker that leaves has written."""
    _path(worker_id).unlink(missing_ok=True)


def check() -> HealthReport:
    """Return the state of every worker process that has not ended, and whether all are healthy.

    Healthy: there is at least one, and no heartbeat is overdue.
    """
    workers = [_judged(status_file) for status_file in _status_files()]
    healthy = bool(workers) and all(each["healthy"] for each in workers)
    return {"healthy": healthy, "timestamp": time.time(), "workers": workers}


def _judged(status_file: StatusFile) -> WorkerHealth:
    return {
        "healthy": time.time() - status_file["timestamp"] <= status_file["valid_seconds"],
        "worker_id": status_file["worker_id"],
        "worker_status": status_file["worker_status"],
        "current_operation": status_file["current_operation"],
        "timestamp": status_file["timestamp"],
    }


def _status_files() -> Iterator[StatusFile]:
    for path in sorted(_directory().glob("*.json")):
        with suppress(OSError, ValueError):
            status_file: StatusFile = json.loads(path.read_text())
            if not process_identity.has_ended(status_file["process"]):
                yield status_file


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
