"""What a process of a check prints: its beginning and its end are kept, however much it is."""

import os
import threading

KEPT_BYTES = 4096  # of the beginning, and of the end
READ_BYTES = 2**16
END_SECONDS = 1.0  # for the last lines of a process that has died


class Output(threading.Thread):
    """Reads from a pipe until no process has its other end any more.

    A recipe may print gigabytes, too much for a file, and it would stop at a pipe that is full.
    """

    def __init__(self) -> None:
        super().__init__(name="output", daemon=True)
        self._reading, self.writing = os.pipe()  # descriptors
        self._first, self._last = b"", b""
        self._num_bytes = 0

    def run(self) -> None:
        while some := os.read(self._reading, READ_BYTES):
            self._num_bytes += len(some)
            num_first = KEPT_BYTES - len(self._first)
            self._first += some[:num_first]
            self._last = (self._last + some[num_first:])[-KEPT_BYTES:]
        os.close(self._reading)

    def text(self) -> str:
        """Return what the process has printed, which has died; without the middle if it is much."""
        self.join(END_SECONDS)
        left_out = self._num_bytes - len(self._first) - len(self._last)
        middle = f"\n[{left_out} bytes are left out]\n".encode() if left_out > 0 else b""
        return (self._first + middle + self._last).decode(errors="replace").strip()
