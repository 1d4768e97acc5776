"""What is removed in a moment: neither a supervisor nor a page has the time."""

import logging
import queue
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)


class Removals:
    """One thread that removes. It holds no process up that ends: what is left, the sweep finds."""

    def __init__(self) -> None:
        self._calls: queue.Queue[Callable[[], None]] = queue.Queue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, call: Callable[[], None]) -> None:
        self._calls.put(call)
        with self._starting:
            if self._thread is None:  # not before: a server may fork its workers first
                self._thread = threading.Thread(target=self._run, name="removing", daemon=True)
                self._thread.start()

    def join(self) -> None:
        """Wait until nothing is left to do."""
        self._calls.join()

    def _run(self) -> None:
        while True:
            call = self._calls.get()
            try:
                call()
            except Exception:
                logger.exception("some files are left to the sweep")
            finally:
                self._calls.task_done()


REMOVALS = Removals()
