"""Saying in which rows of a table something is wrong."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainops.runtime.errors import InputError

FIRST_ROW = 2  # as where tables are uploaded: the header is row 1
SHOWN_ROWS = 5


def refuse(is_wrong: NDArray[Any], problem: str) -> None:
    """Raise InputError if anything is wrong, with the first rows where it is."""
    if is_wrong.any():
        raise InputError({"dataset": f"{problem} in {rows_of(is_wrong)} (the header is row 1)"})


def rows_of(is_wrong: NDArray[Any]) -> str:
    """Return e.g. "row 7", or "rows 7, 9, 12, 13, 20 and 3 more"."""
    rows = (np.flatnonzero(is_wrong) + FIRST_ROW).tolist()
    shown = ", ".join(map(str, rows[:SHOWN_ROWS]))
    more = f" and {len(rows) - SHOWN_ROWS} more" if len(rows) > SHOWN_ROWS else ""
    return f"row{'s' if len(rows) > 1 else ''} {shown}{more}"
