"""Files that are open in this process, and the reading of bytes at an offset."""

import os
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Opened(Generic[T]):
    """What `make(key)` returned in this process: the `most` used latest.

    A copy in another process, forked or pickled, begins empty.
    """

    def __init__(
        self, make: Callable[[int], T], most: int, close: Callable[[T], object] | None = None
    ) -> None:
        self._make, self._close, self.most = make, close, most
        self._forget()

    def get(self, key: int) -> T:
        if self._pid != os.getpid():
            self._forget()
        if key in self._found:
            self._found.move_to_end(key)
            return self._found[key]
        while len(self._found) >= self.most:
            _, oldest = self._found.popitem(last=False)
            if self._close is not None:
                self._close(oldest)
        self._found[key] = self._make(key)
        return self._found[key]

    def _forget(self) -> None:
        self._found: OrderedDict[int, T] = OrderedDict()
        self._pid = os.getpid()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_found": OrderedDict(), "_pid": 0}


def read_at(descriptor: int, offset: int, num_bytes: int) -> bytes:
    """Return bytes of an open file. Raises EOFError where the file ends before."""
    pieces, left = [], num_bytes
    while left:
        piece = os.pread(descriptor, left, offset)
        if not piece:
            raise EOFError(f"it ends at byte {offset}, {left} bytes too early")
        pieces.append(piece)
        offset, left = offset + len(piece), left - len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def require_index(index: int, length: int) -> None:
    """Raise IndexError unless it is that of an example; negative ones are not."""
    if not 0 <= index < length:
        raise IndexError(f"got {index}; allowed: 0 to {length - 1}")
