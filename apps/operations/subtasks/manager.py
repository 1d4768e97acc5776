"""Subtasks of one attempt: create them, follow them, and report them to the attempt's process."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial

from apps.checkpoints import copies, integrity, signatures, storage
from apps.checkpoints.models import Checkpoint
from apps.ledger import services as ledgers
from apps.operations.files.uploads import BackgroundCall
from apps.operations.lifecycle import Reason, State, reason_label
from apps.operations.models import Operation, Subtask
from apps.operations.subtasks import services
from trainops.process.protocol import DropSubtasks, StartSubtasks, SubtaskEnded, SubtasksStarted
from trainops.runtime.checkpoint.manifest import Candidate
from trainops.runtime.errors import CheckpointCorrupted
from trainops.runtime.ledger import Entry
from trainops.runtime.subtasks import SubtaskOutcome, SubtaskResult

LOOK_SECONDS = 0.5
FETCH_AGAIN_SECONDS, MAX_FAILURES = 5.0, 12  # of fetching the checkpoint of one subtask

logger = logging.getLogger(__name__)


class SubtaskManager:
    """Polls the database, and fetches final checkpoints in the background.

    Its whole state is in the database: the next attempt requests the same subtasks and finds them.
    """

    def __init__(self, parent: Operation, nobody_waits: threading.Event) -> None:
        self.parent, self.nobody_waits = parent, nobody_waits
        self.requested: StartSubtasks | None = None
        self._running: set[str] = set()  # ids of operations whose end was not reported
        self._fetching: dict[str, tuple[Checkpoint, BackgroundCall[None]]] = {}
        self._num_failures: Counter[str] = Counter()
        self._looked_at = float("-inf")

    @property
    def is_waiting(self) -> bool:
        return bool(self._running)

    def start(self, message: StartSubtasks) -> SubtasksStarted:
        """Start a group's subtasks; return the answer to the child. Raises Fenced."""
        self.requested = message
        ids = services.start(self.parent, message.directory, message.subtasks)
        self._running, self._fetching = set(ids), {}
        group = message.subtasks[0].group if message.subtasks else 0
        return SubtasksStarted(group, services.age_seconds(ids))

    def drop(self, message: DropSubtasks) -> None:
        """End those of these subtasks that are not done. Raises Fenced."""
        group = Subtask.objects.filter(pk__in=self._running, group=message.group)
        dropped = group.filter(index__in=message.indexes)
        services.drop(self.parent, dropped.values_list("pk", flat=True))

    def ended(self) -> Iterator[SubtaskEnded]:
        """Yield the subtasks that have ended since the last call.

        Raises OSError if the storage fails repeatedly to return a final checkpoint, or this process
        cannot judge signatures, and SignatureRefused.
        """
        if not self._running or time.monotonic() - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = time.monotonic()
        services.revive(self.parent, self._running, {State.CANCELLED})
        subtasks = Subtask.objects.filter(pk__in=self._running)
        for subtask in subtasks.select_related("operation").order_by("index"):
            if (result := self._result_of(subtask)) is not None:
                self._running.discard(subtask.pk)
                self._fetching.pop(subtask.pk, None)
                yield SubtaskEnded(result)

    def _result_of(self, subtask: Subtask) -> SubtaskResult | None:
        operation = subtask.operation
        if operation.state == State.COMPLETED:
            found = self._fetched(subtask)
            return None if found is None else self._result(subtask, "done", found)
        if operation.state == State.FAILED:
            error = (operation.error or {}).get("message") or reason_label(operation.reason)
            return self._result(subtask, "failed", note=f"{error} ({operation.pk})")
        if operation.state == State.CANCELLED and operation.reason == Reason.DROPPED:
            return self._result(subtask, "dropped")
        return None

    def _fetched(self, subtask: Subtask) -> Checkpoint | None:
        """Return the final checkpoint once it is on this machine; restart the subtask if lost."""
        if subtask.pk not in self._fetching:
            found = services.final(subtask.pk)
            if found is None:
                self._start_again()
                return None
            call = partial(copies.make_local, found.artifacts_path, found.manifest_digest)
            self._fetching[subtask.pk] = found, BackgroundCall(call, stop=self.nobody_waits)
        found, download = self._fetching[subtask.pk]
        if not download.is_done:
            return None
        signatures.require(found)  # computing it again, because of a signature, would delete it
        del self._fetching[subtask.pk]
        try:
            download.result()
        except CheckpointCorrupted as error:
            integrity.mark(found.artifacts_path, error)
            return None  # the next poll starts it again
        except OSError as error:
            self._note_failure(subtask, error)
            return None
        return found

    def _note_failure(self, subtask: Subtask, error: OSError) -> None:
        """Delay the next download. Raises the error if there were too many."""
        parent = self.parent.pk
        logger.warning("%s: the result of %s was not fetched: %s", parent, subtask, error)
        self._num_failures[subtask.pk] += 1
        if self._num_failures[subtask.pk] == MAX_FAILURES:
            raise error
        self._looked_at = time.monotonic() + FETCH_AGAIN_SECONDS - LOOK_SECONDS

    def _start_again(self) -> None:
        """Restart lost subtasks; results that were reported already are reported again."""
        if self.requested is not None:
            directory, subtasks = self.requested.directory, self.requested.subtasks
            self._running = set(services.start(self.parent, directory, subtasks))

    def _result(
        self,
        subtask: Subtask,
        outcome: SubtaskOutcome,
        found: Checkpoint | None = None,
        note: str = "",
    ) -> SubtaskResult:
        checkpoint = None
        if found is not None:
            path = storage.directory(found.artifacts_path)
            checkpoint = Candidate(path, found.manifest_digest)
        key = subtask.group, subtask.index
        return SubtaskResult(*key, outcome, checkpoint, self._entries(subtask), note)

    def _entries(self, subtask: Subtask) -> tuple[Entry, ...]:
        """Return the entries of a subtask in its parent's ledger."""
        if not self.parent.uses_ledger:
            return ()
        return tuple(
            ledgers.entries_where(
                self.parent.pk, self.parent.ledger_fields,
                group=subtask.group, index=subtask.index,
            )
        )  # fmt: skip
