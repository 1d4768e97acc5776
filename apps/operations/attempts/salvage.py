"""Save the in-memory state of a child, by a thread of the child, before it is killed.

Its main thread may be stuck in the job's code, so that no safe point comes; the copy of the last
one is intact. A child that does not acknowledge the request is not waited for.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from apps.operations.attempts.outcomes import AttemptOutcome, Cancelled, Interrupted
from apps.operations.lifecycle import Reason
from trainops.process.protocol import Salvage as SalvageRequest
from trainops.process.protocol import Salvaged, Salvaging, ToChild
from trainops.runtime.checkpoint.manifest import CheckpointType

ANSWER_SECONDS = 5.0  # until the acknowledgement: a stuck extension may hold its interpreter
WRITE_SECONDS = 60.0  # from then on, until the checkpoint is committed

# A kill by a person is at once; before one for a lost lease, the child saves by itself.
TYPES = {
    Reason.CANCEL_TIMEOUT: CheckpointType.CANCELLATION,
    Reason.STALLED: CheckpointType.FAILURE,
    Reason.WORKER_LOST: CheckpointType.FAILURE,  # that of another node
}


class SalvageDelay:
    """Delays an outcome while the child saves its state. `send` sends to the child."""

    def __init__(
        self, *, send: Callable[[ToChild], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._send, self._clock = send, clock
        self._awaited: Cancelled | Interrupted | None = None  # by the child's answer
        self._until = 0.0
        self._is_acknowledged = self._is_over = False

    def before(self, outcome: AttemptOutcome | None, *, is_possible: bool) -> AttemptOutcome | None:
        """Return the outcome once nothing more is to be waited for; None until then.

        One that does not wait comes first, whatever was waited for.
        """
        if isinstance(outcome, Cancelled | Interrupted) and is_possible and outcome.reason in TYPES:
            if self._awaited is None:
                self._awaited, self._until = outcome, self._clock() + ANSWER_SECONDS
                self._send(SalvageRequest(TYPES[outcome.reason]))
        elif outcome is not None:
            return outcome
        if self._awaited is None or (self._clock() < self._until and not self._is_over):
            return None
        if self._is_acknowledged:
            return self._awaited
        note = f"{self._awaited.note}, and it did not respond: its in-memory state is lost"
        return replace(self._awaited, note=note)

    def receive(self, message: Salvaging | Salvaged) -> None:
        """Handle the child's acknowledgement, or its report that it is done.

        The child also saves at half of a shutdown's time, and by itself where its lease is about to
        end; its messages about that may come late, and are no answers to this request.
        """
        if self._awaited is None or message.type != TYPES[self._awaited.reason]:
            return
        if isinstance(message, Salvaging):
            self._until, self._is_acknowledged = self._clock() + WRITE_SECONDS, True
        else:
            self._is_over = True
