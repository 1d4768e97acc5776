"""What takes as long as a network does, beside the supervisor's loop: uploads and downloads."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Beside(threading.Thread, Generic[T]):
    """A call in a thread of its own. It is handed an event that says that nobody waits any more."""

    def __init__(self, call: Callable[[threading.Event], T], *, stop: threading.Event) -> None:
        super().__init__(name="transfer", daemon=True)
        self._call, self._stop_event = call, stop
        self._value: list[T] = []
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._value.append(self._call(self._stop_event))
        except BaseException as error:  # noqa: BLE001 - `result` raises it, where the loop asks
            self._error = error

    @property
    def is_done(self) -> bool:
        return not self.is_alive()

    def result(self) -> T:
        """Return what the call returned, or raise what it raised. Only when it is done."""
        if self._error is not None:
            raise self._error
        return self._value[0]


@dataclass(slots=True)
class Upload:
    """A staged checkpoint that waits for its upload, or is being uploaded."""

    checkpoint: dict[str, Any]
    transfer: "Beside[None] | None" = field(default=None)
