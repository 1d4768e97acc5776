"""Lets a confined process of its own read an upload, and turns its answer into ours."""

import json
import logging
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any, NoReturn

from django.conf import settings

from apps.datasets.errors import DatasetError
from apps.datasets.tables.options import Limits, Options

logger = logging.getLogger(__name__)
MEMORY_BYTES = 6 * 1024**3
SECONDS = 900
_slots = BoundedSemaphore(2)  # more at once would only take each other's memory


def normalise(source: Path, target: Path, options: Options) -> dict[str, Any]:
    """Write the normalised `target`; return {format, encoding, delimiter, num_rows, columns,
    preview}.

    Raises DatasetError with what is wrong with the table.
    """
    request = {
        "source": str(source),
        "target": str(target),
        "options": asdict(options),
        "limits": asdict(limits()),
        "memory_bytes": MEMORY_BYTES,
        "seconds": SECONDS,
    }
    with _slots:
        answer = _ask(request)
    if "table" not in answer:
        _refuse(answer)
    table: dict[str, Any] = answer["table"]
    return table


def limits() -> Limits:
    return Limits(**getattr(settings, "DATASET_LIMITS", {}))


def disk_full() -> DatasetError:
    return DatasetError(
        {"file": "There is no room left on the server's disk. Nothing was stored."},
        "DISK_FULL",
        status=507,
    )


def _ask(request: Mapping[str, Any]) -> dict[str, Any]:
    try:
        done = subprocess.run(
            [sys.executable, "-m", "apps.datasets.tables.child"],
            input=json.dumps(request).encode(),
            capture_output=True,
            cwd=settings.ROOT,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"timed_out": True}
    if done.returncode < 0:
        errors = done.stderr.decode(errors="replace")[-2000:]
        logger.warning("The reader of an upload died of signal %s:\n%s", -done.returncode, errors)
        return {"died_of": -done.returncode}
    if done.returncode:
        errors = done.stderr.decode(errors="replace")
        logger.error("The reader of an upload failed:\n%s", errors)
        if "MemoryError" in errors or "bad_alloc" in errors:
            return {"out_of_memory": True}
        raise RuntimeError("the reader of uploads failed; the log says why")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _refuse(answer: Mapping[str, Any]) -> NoReturn:
    match answer:
        case {"refused": {"code": code, "message": message, "field": field, "details": details}}:
            raise DatasetError({field: message}, code, details=details)
        case {"disk_full": _}:
            raise disk_full()
        case {"out_of_memory": _}:
            problem = f"Reading the table takes more than {MEMORY_BYTES} bytes of memory."
            details = {"allowed": MEMORY_BYTES}
            raise DatasetError({"file": problem}, "TABLE_TOO_LARGE", details=details)
        case {"timed_out": _}:
            problem = f"Reading the table takes longer than {SECONDS} seconds."
            raise DatasetError({"file": problem}, "TABLE_TOO_LARGE", details={"allowed": SECONDS})
        case _:
            problem = "The file breaks the program that reads it; it is damaged or made to do so."
            raise DatasetError({"file": problem}, "UNREADABLE_FILE", details=dict(answer))
