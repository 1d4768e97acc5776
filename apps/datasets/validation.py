"""Lets a confined process of its own read an upload, and turns its answer into ours."""

import logging
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from django.conf import settings

from apps.datasets.errors import DatasetError
from apps.datasets.tables.options import TableLimits, TableOptions
from apps.datasets.tables.rows import NormalisedTable, TableAnswer
from trainops.concurrency_limit import ConcurrencyLimit
from trainops.confined import limits as confined
from trainops.confined.calling import ConfinedProcessFailed, OutOfMemory, OutOfTime, call

logger = logging.getLogger(__name__)
MEMORY_BYTES = 6 * 1024**3
SECONDS = 900
_limit = ConcurrencyLimit(2)  # more at once would only take each other's memory


def normalise(
    source: Path,
    target: Path,
    options: TableOptions,
    *,
    person: str = "",
    wait_seconds: float = 0,
) -> NormalisedTable:
    """Write the normalised `target`; return its description.

    `person` is whose upload it is: one is read at a time. Raises DatasetError with what is wrong
    with the table, and ServerBusy.
    """
    request = {
        "source": str(source),
        "target": str(target),
        "options": asdict(options),
        "limits": asdict(limits()),
    }
    within = confined.Limits(MEMORY_BYTES, SECONDS, file_bytes=limits().max_unpacked_bytes)
    try:
        with _limit.taken(person, wait_seconds=wait_seconds):
            answer: TableAnswer = call("apps.datasets.tables.child", request, within)
    except ConfinedProcessFailed as error:
        raise _unreadable(error) from error
    if "table" not in answer:
        _refuse(answer)
    return answer["table"]


def limits() -> TableLimits:
    return TableLimits(**getattr(settings, "DATASET_LIMITS", {}))


def disk_full() -> DatasetError:
    return DatasetError(
        {"file": "The server's disk is full. Nothing was stored."},
        "DISK_FULL",
        status=507,
    )


def _unreadable(error: ConfinedProcessFailed) -> DatasetError:
    """Return what to tell of a process that gave no answer."""
    match error:
        case OutOfMemory():
            problem = f"Reading the table takes more than {MEMORY_BYTES} bytes of memory."
            details = {"allowed": MEMORY_BYTES}
            return DatasetError({"file": problem}, "TABLE_TOO_LARGE", details=details)
        case OutOfTime():
            problem = f"Reading the table takes longer than {SECONDS} seconds."
            return DatasetError({"file": problem}, "TABLE_TOO_LARGE", details={"allowed": SECONDS})
        case _:
            logger.warning("The reader of an upload failed: %s\n%s", error, error.log)
            problem = "The reader of the file crashed: the file is damaged or malicious."
            return DatasetError({"file": problem}, "UNREADABLE_FILE")


def _refuse(answer: TableAnswer) -> NoReturn:
    match answer:
        case {"refused": {"code": code, "message": message, "field": field, "details": details}}:
            raise DatasetError({field: message}, code, details=details)
        case {"disk_full": _}:
            raise disk_full()
        case _:
            raise _unreadable(OutOfMemory("", ""))
