"""What a confined process does with an upload: read it as a table.

The request is {source, target, options, limits}; the answer {"table": …}, {"refused": …},
{"out_of_memory": true} or {"disk_full": true}. The web process never loads pyarrow.
"""

import errno
from pathlib import Path

from apps.datasets.tables.normalise import normalise
from apps.datasets.tables.options import TableLimits, TableOptions
from apps.datasets.tables.refusals import TableRefused
from apps.datasets.tables.rows import TableAnswer, TableRequest


def answer(request: TableRequest) -> TableAnswer:
    try:
        table = normalise(
            Path(request["source"]),
            Path(request["target"]),
            TableOptions(**request["options"]),
            TableLimits(**request["limits"]),
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
