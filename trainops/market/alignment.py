"""Several symbols in one table: whose rows are whose, and which times they share."""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trainops.market.refusals import refuse
from trainops.market.times import Times
from trainops.runtime.errors import InputError

RowNumbers: TypeAlias = Any  # indices, or a slice


def rows_by_symbol(column: pa.ChunkedArray, wanted: Sequence[str]) -> dict[str, RowNumbers]:
    """Return the rows of each symbol, in the order wanted or else that of their names.

    Raises InputError: a row without a symbol, a symbol that there is not.
    """
    refuse(pc.is_null(column).to_numpy(), "no symbol")
    names: Any = column.cast(pa.string()).combine_chunks().dictionary_encode()
    codes = names.indices.to_numpy()
    known = names.dictionary.to_pylist()
    if absent := [name for name in wanted if name not in known]:
        raise InputError(
            {"symbols": f"got {', '.join(absent)}; allowed: {', '.join(sorted(known)[:50])}"}
        )
    return {name: np.flatnonzero(codes == known.index(name)) for name in wanted or sorted(known)}


def require_rising(name: str, times: Times, rows: RowNumbers) -> None:
    """Raise InputError, with row numbers, unless the times of these rows rise."""
    own = times[rows]
    steps = np.diff(own, prepend=own[0] - 1)
    if steps.min() > 0:
        return
    for is_wrong, problem in (
        (steps == 0, "times repeat"),
        (steps < 0, "times are not ascending"),
    ):
        flags = np.zeros(len(times), dtype=bool)
        flags[rows] = is_wrong
        refuse(flags, f"{problem} ({name})")


def aligned(times: Times, rows: Mapping[str, RowNumbers]) -> tuple[Times, dict[str, RowNumbers]]:
    """Return the times that every symbol has, and the rows of each at them. Raises InputError."""
    if len(rows) == 1:
        return times[next(iter(rows.values()))], dict(rows)
    common = reduce(np.intersect1d, [times[each] for each in rows.values()])
    if not len(common):
        raise InputError({"dataset": f"no common time of {', '.join(rows)}"})
    at = {name: each[np.searchsorted(times[each], common)] for name, each in rows.items()}
    return common, at
