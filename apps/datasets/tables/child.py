"""The process that reads an upload: limited in memory and time, and gone when it is done.

Reads one JSON object from stdin ({source, target, options, limits, memory_bytes, seconds}), writes
one to stdout: {"table": …}, {"refused": …} or {"disk_full": true}. What a malicious file could do
to a parser written in C++ ends with this process; the web process never loads pyarrow at all.
"""

import ctypes
import errno
import json
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1


def main() -> NoReturn:
    request = json.load(sys.stdin)
    _confine(request["memory_bytes"], request["seconds"])
    json.dump(answer(request), sys.stdout)
    sys.stdout.flush()
    os._exit(0)  # the answer stands: threads of the libraries may not spoil it at their end


def answer(request: dict[str, Any]) -> dict[str, Any]:
    # After _confine, so that the libraries' own threads and memory are confined too.
    from apps.datasets.tables.normalise import normalise  # noqa: PLC0415
    from apps.datasets.tables.options import Limits, Options  # noqa: PLC0415
    from apps.datasets.tables.refusals import TableRefused  # noqa: PLC0415

    try:
        table = normalise(
            Path(request["source"]),
            Path(request["target"]),
            Options(**request["options"]),
            Limits(**request["limits"]),
        )
    except TableRefused as refused:
        return {
            "refused": {
                "code": refused.code,
                "message": refused.message,
                "field": refused.field,
                "details": refused.details,
            }
        }
    except MemoryError:
        return {"out_of_memory": True}
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(error):
            return {"disk_full": True}
        raise
    return {"table": table}


def _confine(memory_bytes: int, seconds: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # reserves nothing ahead of its use
    os.environ["OMP_NUM_THREADS"] = "1"
    with suppress(OSError, AttributeError):  # Linux only: dies with the process that asked
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main()
