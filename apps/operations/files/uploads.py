"""Uploads and downloads in the background of the supervisor's loop."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from apps.checkpoints import remote
from trainops.runtime.checkpoint.manifest import StagedCheckpoint

T = TypeVar("T")


class BackgroundCall(threading.Thread, Generic[T]):
    """A call in a thread of its own, like a Future. The call gets an event that cancels it."""

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
class Uploads:
    """Staged checkpoints of one attempt on their way to the bucket, one after the other.

    Their child waits for an answer to each, in this order.
    """

    operation_id: str
    nobody_waits: threading.Event
    waiting: deque[StagedCheckpoint] = field(default_factory=deque)  # the oldest first
    _upload_call: BackgroundCall[None] | None = None  # of the oldest

    def add(self, checkpoint: StagedCheckpoint) -> None:
        self.waiting.append(checkpoint)

    def is_first_stored(self) -> bool:
        """Begin the upload of the oldest, or see what became of it; one that ended waits no more.

        Raises what Remote.upload raises.
        """
        if self._upload_call is None:
            path = f"{self.operation_id}/{self.waiting[0].directory}"
            self._upload_call = BackgroundCall(partial(upload, path), stop=self.nobody_waits)
        if not self._upload_call.is_done:
            return False
        upload_call, self._upload_call = self._upload_call, None
        self.waiting.popleft()
        upload_call.result()
        return True


def upload(artifacts_path: str, stop: threading.Event) -> None:
    """Upload a staged checkpoint, where a bucket is the storage. Raises what Remote.upload does."""
    if (bucket := remote.bucket()) is not None:
        bucket.upload(artifacts_path, stop)
