"""NPZ archives of NumPy: what is in them is known before any of it is read, and nothing is run.

Only the outlines are believed, and only as far as the sizes agree: an array of Python objects would
be a pickle, and is refused by its header.
"""

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from apps.datasets.tables.options import TableLimits
from apps.datasets.tables.refusals import TableRefused, listed

ENDING = ".npy"
HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
BROKEN = (
    zipfile.BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError, OSError, RuntimeError,
    SyntaxError, TypeError, ValueError, OverflowError, UnicodeError,
)  # fmt: skip
ENCRYPTED = 0x1


@dataclass(frozen=True, slots=True)
class NpzOutline:
    """What the header of an array says."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def row_bytes(self) -> int:
        return prod(self.shape[1:]) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype} {self.shape}"


class Npz:
    """The arrays of an archive by name, each of a name that is allowed, read row by row.

    Raises TableRefused for whatever is not as it says.
    """

    def __init__(self, path: Path, allowed: tuple[str, ...], limits: TableLimits) -> None:
        self._files = ExitStack()
        try:
            self._archive = self._files.enter_context(zipfile.ZipFile(path))
            infos = self._archive.infolist()
            _check_names([info.filename for info in infos], allowed)
            opened = {info.filename[: -len(ENDING)]: self._open(info) for info in infos}
        except BROKEN as error:
            self._files.close()
            raise broken(error) from None
        except TableRefused:
            self._files.close()
            raise
        self._readers = {name: file for name, (file, _) in opened.items()}
        self.outlines: Mapping[str, NpzOutline] = {name: each for name, (_, each) in opened.items()}
        if (unpacked := sum(info.file_size for info in infos)) > limits.max_image_bytes:
            self._files.close()
            raise TableRefused(
                "TOO_LARGE_UNPACKED",
                f"Unpacked, the arrays have {unpacked} bytes; at most {limits.max_image_bytes} "
                "are allowed.",
                given=unpacked,
                allowed=limits.max_image_bytes,
            )

    def __enter__(self) -> "Npz":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._files.close()

    def rows(self, num_rows: int) -> Iterator[dict[str, NDArray[Any]]]:
        """Yield all arrays, N rows at a time; the checksums are verified on the way."""
        total = min(each.shape[0] for each in self.outlines.values())
        for first in range(0, total, num_rows):
            count = min(num_rows, total - first)
            yield {name: self._read(each, count) for name, each in self.outlines.items()}
        for name in self.outlines:
            if self._bytes(name, 1):
                raise broken(f"{name} has data after its end")

    def _open(self, info: zipfile.ZipInfo) -> tuple[IO[bytes], NpzOutline]:
        """Return an array's file, at its first number, and what its header says."""
        name = info.filename[: -len(ENDING)]
        if info.flag_bits & ENCRYPTED:
            raise broken(f"{name} is encrypted")
        file = self._files.enter_context(self._archive.open(info))
        version = npy.read_magic(file)
        if version not in HEADERS:
            raise broken(f"{name} has a header of version {version}; allowed: 1.0 and 2.0")
        shape, is_fortran, dtype = HEADERS[version](file)
        if is_fortran and len(shape) > 1:
            raise TableRefused(
                "WRONG_ORDER",
                f"The array {name!r} is stored in Fortran order; save np.ascontiguousarray of it.",
                field=f"arrays.{name}",
                given="Fortran order",
                allowed="C order",
            )
        outline = NpzOutline(name, tuple(shape), dtype)
        _check_size(outline, info.file_size - file.tell())
        return file, outline

    def _read(self, outline: NpzOutline, count: int) -> NDArray[Any]:
        size = count * outline.row_bytes
        content = self._bytes(outline.name, size)
        if len(content) != size:
            raise broken(f"{outline.name} ends before its last row")
        try:
            values = np.frombuffer(content, dtype=outline.dtype)
            return values.reshape(count, *outline.shape[1:])
        except ValueError as error:  # text of no characters
            raise broken(error) from None

    def _bytes(self, name: str, size: int) -> bytes:
        try:
            return self._readers[name].read(size)
        except EOFError:
            raise broken(f"{name} ends before its last row") from None
        except BROKEN as error:
            raise broken(f"{name}: {error}") from None


def broken(error: Exception | str) -> TableRefused:
    reason = str(error).strip().split("\n")[0][:200] or type(error).__name__
    return TableRefused("INVALID_NPZ", f"The NPZ archive cannot be read: {reason}")


def _check_names(names: list[str], allowed: tuple[str, ...]) -> None:
    """Each name is one of those allowed, once: no folders, no paths, no other files."""
    files = [f"{name}{ENDING}" for name in allowed]
    if unknown := [name[:100] for name in names if name not in files]:
        raise TableRefused(
            "UNKNOWN_ARRAY",
            f"The archive holds {listed(unknown)}; allowed: {', '.join(allowed)}.",
            given=unknown[:20],
            allowed=list(allowed),
        )
    if len(set(names)) < len(names):
        raise TableRefused(
            "UNKNOWN_ARRAY",
            f"The archive holds an array more than once: {listed(names)}.",
            given=names[:20],
            allowed="each array once",
        )


def _check_size(outline: NpzOutline, size: int) -> None:
    """The header and the archive agree on how much there is to read, and it is plain numbers."""
    if outline.dtype.hasobject or outline.dtype.names is not None:
        raise TableRefused(
            "WRONG_DTYPE",
            f"The array {outline.name!r} holds {outline.dtype}, not plain numbers or text; "
            "objects are never unpickled.",
            field=f"arrays.{outline.name}",
            given=str(outline.dtype)[:100],
            allowed="arrays without objects",
        )
    if any(each < 0 for each in outline.shape):
        raise broken(f"{outline.name} has the shape {outline.shape}")
    if (said := prod(outline.shape) * outline.dtype.itemsize) != size:
        raise broken(f"the header of {outline.name} says {said} bytes, the archive has {size}")
