"""Ids as people type them: whole, or a beginning or end that fits only one operation."""

import re

from trainops.cli.api import Api, Rows
from trainops.cli.problems import ExitCode, Problem

OPERATION_ID = re.compile(r"op_[a-z]+_\d{8}_\d{6}_[0-9a-f]{6}")
_MOST = 50


def operation_id(api: Api, typed: str) -> str:
    """Return the id that `typed` is, begins or ends.

    Raises:
        Problem: it fits none, or several.
    """
    if OPERATION_ID.fullmatch(typed):
        return typed
    found = api.rows("operations", search=typed, limit=_MOST) if typed.strip() else Rows([])
    ids = [str(row["id"]) for row in found.rows]
    fitting = [each for each in ids if each.startswith(typed) or each.endswith(typed)]
    if not fitting:
        raise Problem(f"No operation's id begins or ends with {typed!r}.", ExitCode.NOT_FOUND)
    if len(fitting) > 1 or found.has_more:
        raise Problem(
            f"{typed!r} fits several operations; type more of the id.",
            ExitCode.USAGE,
            hints=tuple(fitting[:10]),
        )
    return fitting[0]
