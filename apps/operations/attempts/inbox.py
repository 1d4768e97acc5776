"""The messages and the output of a child, read from its pipes."""

import os
import selectors
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from apps.operations.attempts.children import Child
from trainops.process.wire import Hangup

if TYPE_CHECKING:
    from trainops.process.protocol import ToSupervisor

TICK_SECONDS = 0.1
OUTPUT_BYTES = 1 << 16  # read at once


class Inbox:
    """What a child sent. `received` holds the messages that are not handled yet, in order.

    They stay there while the database is away. `log` is given the output.
    """

    def __init__(self, child: Child, log: Callable[[bytes], None]) -> None:
        self.received: deque[ToSupervisor] = deque()
        self._child, self._log = child, log
        self._selector = selectors.DefaultSelector()

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Allow `listen` within this context."""
        self._selector.register(self._child.wire, selectors.EVENT_READ)
        self._selector.register(self._child.output, selectors.EVENT_READ)
        with self._selector:
            yield

    def listen(self, *, is_waiting: bool) -> None:
        """Read what comes within a tick. Raises Hangup.

        While the supervisor `is_waiting` for the database, messages stay in the pipe.
        """
        if is_waiting:
            time.sleep(TICK_SECONDS)
        for key, _ in self._selector.select(0 if is_waiting else TICK_SECONDS):
            if key.fileobj is not self._child.wire:
                self._read_output()
            elif not is_waiting:
                self.received += self._child.wire.read()

    def read_the_rest(self) -> None:
        """Read the messages that were sent before a hangup."""
        with suppress(Hangup, ValueError):  # a line that is cut is no message
            while self._child.wire.has_input(0):
                self.received += self._child.wire.read()

    def drain_output(self) -> None:
        """Read the output to its end, without waiting for more."""
        os.set_blocking(self._child.output, False)
        with suppress(BlockingIOError):
            while output := os.read(self._child.output, OUTPUT_BYTES):
                self._log(output)

    def _read_output(self) -> None:
        if output := os.read(self._child.output, OUTPUT_BYTES):
            self._log(output)
        else:
            self._selector.unregister(self._child.output)
