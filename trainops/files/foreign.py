"""Opening a file from elsewhere. Nothing in it is executed, whatever it is.

First the archive is checked and its pickle is read as an outline, under a closed list of what it
may ask for; only then torch loads it, with weights_only=True and no wider a list.
"""

import os
import pickle
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy._core import multiarray
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from torch import Tensor

from trainops.files.archive import read_archive
from trainops.files.calls import NUMPY_1, NUMPY_2, PATHS, Calls, path_text
from trainops.files.errors import DamagedFile
from trainops.files.outline import Outline, TensorOutline
from trainops.files.pickled import outline_of

NUMPY_DTYPES = (
    np.dtypes.Float32DType,
    np.dtypes.Float64DType,
    np.dtypes.Int32DType,
    np.dtypes.Int64DType,
    np.dtypes.UInt8DType,
    np.dtypes.UInt32DType,
    np.dtypes.BoolDType,
)
HARMLESS: list[Any] = [
    (np.ndarray, "numpy.ndarray"),
    (np.dtype, "numpy.dtype"),
    *NUMPY_DTYPES,
    *((multiarray._reconstruct, f"{each}multiarray._reconstruct") for each in (NUMPY_1, NUMPY_2)),
    *((multiarray.scalar, f"{each}multiarray.scalar") for each in (NUMPY_1, NUMPY_2)),
]
FAILED_READING = (
    pickle.UnpicklingError, ArithmeticError, AssertionError, AttributeError, EOFError, LookupError,
    RuntimeError, TypeError, ValueError, struct.error,
)  # fmt: skip


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file; nothing that would have to be waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise DamagedFile(f"{path.name} is not a regular file")
        yield file


def outline_in(file: BinaryIO) -> Outline:
    """Return what an open file holds without loading it. Raises FormatErrors.

    One of safetensors, which is nothing but tensors, is loaded: that executes nothing.
    """
    if _is_safetensors(file):
        return Outline({name: _outlined(each) for name, each in _tensors_in(file).items()})
    archive = read_archive(file)
    return outline_of(archive.pickle, Calls(archive.storages, archive.total_bytes))


def load(file: BinaryIO, seen: Outline) -> Any:
    """Return the values of the open file that this outline was read from, on the CPU.

    Raises FormatErrors.
    """
    if _is_safetensors(file):
        return _tensors_in(file)
    file.seek(0)
    enums = [
        (partial(path_text, name) if name in PATHS else _value_of, name) for name in seen.enums
    ]
    try:
        with torch.serialization.safe_globals([*HARMLESS, *enums]):
            return torch.load(file, map_location="cpu", weights_only=True)
    except FAILED_READING as error:
        raise DamagedFile(f"torch cannot load the file: {error}"[:300]) from error


def _is_safetensors(file: BinaryIO) -> bool:
    """Whether it begins with the length of a JSON object, and that object."""
    file.seek(0)
    head = file.read(9)
    return len(head) == 9 and head[8:] == b"{" and not head.startswith(b"PK")


def _tensors_in(file: BinaryIO) -> dict[str, Tensor]:
    file.seek(0)
    try:
        return load_safetensors(file.read())
    except (SafetensorError, *FAILED_READING) as error:
        raise DamagedFile(f"the safetensors cannot be read: {error}"[:200]) from error


def _outlined(tensor: Tensor) -> TensorOutline:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return TensorOutline(dtype, tuple(tensor.shape), tensor.nbytes)


def _value_of(value: object) -> object:
    """Stand in for an enumeration that is not to be imported."""
    return value
