"""Tables of a job as CSV: numbers as they are read back to the last bit."""

import errno
from pathlib import Path
from typing import Any

import pandas as pd


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """Write a table. What was written is read back; raises OSError where it differs."""
    table.to_csv(path, index=False, lineterminator="\n")
    numbers = table.select_dtypes("number").dtypes.to_dict()
    dtypes: dict[object, Any] = table.dtypes.to_dict() | dict.fromkeys(numbers, "object")
    found = pd.read_csv(path, dtype=dtypes, keep_default_na=False)
    for name, dtype in numbers.items():  # by NumPy, to the last bit in every version of pandas
        found[name] = found[name].replace("", "nan").to_numpy(dtype)
    if not found.equals(table):
        path.unlink()
        raise OSError(errno.EIO, f"{path.name} differs when read back")
