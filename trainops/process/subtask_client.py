"""The subtask port of an attempt's process: sends requests to its supervisor."""

import queue
from collections.abc import Callable, Sequence

from trainops.process.protocol import (
    DropSubtasks,
    StartSubtasks,
    SubtaskEnded,
    SubtasksStarted,
    now,
)
from trainops.runtime.subtasks import Subtask, SubtaskResult


class SubtaskClient:
    """Implements SubtaskPort. `receive` is called by the thread that reads the wire."""

    def __init__(self, send: Callable[[StartSubtasks | DropSubtasks], None]) -> None:
        self.saved_step: int | None = None
        self.problem = ""
        self._send = send
        self._directory = ""  # of the latest checkpoint
        self._received: queue.SimpleQueue[SubtaskResult | None] = queue.SimpleQueue()  # None: wake
        self._started: dict[int, float] = {}  # when a group was started, on the boot clock

    def start(self, subtasks: Sequence[Subtask]) -> None:
        self._send(StartSubtasks(self._directory, tuple(subtasks)))

    def drop(self, group: int, indexes: Sequence[int]) -> None:
        self._send(DropSubtasks(group, tuple(indexes)))

    def results(self, seconds: float) -> Sequence[SubtaskResult]:
        try:
            first = self._received.get(timeout=seconds)
        except queue.Empty:
            return []
        received = [first]
        while not self._received.empty():
            received.append(self._received.get())
        return [each for each in received if each is not None]

    def age_seconds(self, group: int) -> float:
        return now() - self._started[group] if group in self._started else 0.0

    def receive(self, message: SubtasksStarted | SubtaskEnded) -> None:
        match message:
            case SubtasksStarted(group=group, age_seconds=age_seconds):
                self._started = {group: now() - age_seconds}
                self.wake()
            case SubtaskEnded(result=result):
                self._received.put(result)

    def wake(self) -> None:
        """End a wait in `results`, so that the job looks at its directive."""
        self._received.put(None)

    def saved(self, step: int, directory: str) -> None:
        """Note the latest checkpoint: a committed one, or the one that the run started from."""
        self.saved_step, self._directory, self.problem = step, directory, ""
        self.wake()
