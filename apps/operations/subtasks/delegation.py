"""What one attempt of a server knows of its clients: sent, looked after, and told to its child."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from apps.checkpoints import copies, storage
from apps.checkpoints import services as checkpoints
from apps.checkpoints.models import Checkpoint
from apps.operations import privacy
from apps.operations.lifecycle import Reason, State
from apps.operations.models import ClientPart, Operation
from apps.operations.subtasks import clients
from apps.operations.transfers import Beside
from trainops.process.protocol import Message
from trainops.runtime.errors import CheckpointCorrupted

LOOK_SECONDS = 0.5
FETCH_AGAIN_SECONDS, MAX_FAILURES = 5.0, 12  # of fetching what one client saved

logger = logging.getLogger(__name__)


class Delegation:
    """Asks the database now and then, and fetches what clients saved beside its supervisor's loop.

    Everything that it knows is in the database: the next attempt asks, and finds it there.
    """

    def __init__(self, server: Operation, nobody_waits: threading.Event) -> None:
        self.server, self.nobody_waits = server, nobody_waits
        self.asked: Message | None = None
        self._round = 0
        self._out: set[str] = set()  # ids of operations whose end the child was not told
        self._fetching: dict[str, tuple[Checkpoint, Beside[None]]] = {}
        self._num_failures: Counter[str] = Counter()
        self._looked_at = float("-inf")

    @property
    def is_waiting(self) -> bool:
        return bool(self._out)

    def send(self, message: Message) -> Message:
        """Send a round's clients out; return what the child is told. Raises Fenced."""
        self.asked = message
        ids = clients.send(self.server, message["directory"], message["parts"])
        self._round = message["parts"][0]["round"] if message["parts"] else 0
        self._out, self._fetching = set(ids), {}
        return {"round": self._round, "age_seconds": clients.age_seconds(ids)}

    def drop(self, message: Message) -> None:
        """End the parts of these clients that are not done. Raises Fenced."""
        mine = ClientPart.objects.filter(pk__in=self._out, round=message["round"])
        clients.drop(
            self.server, mine.filter(client__in=message["clients"]).values_list("pk", flat=True)
        )

    def news(self) -> Iterator[Message]:
        """Yield what the child is to be told of clients that have ended since.

        Raises OSError where the storage does not give again and again what they saved.
        """
        if not self._out or time.monotonic() - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = time.monotonic()
        clients.revive(self.server, self._out, {State.CANCELLED})
        parts = ClientPart.objects.filter(pk__in=self._out).select_related("operation")
        for part in parts.order_by("client"):
            if (message := self._message(part)) is not None:
                self._out.discard(part.pk)
                self._fetching.pop(part.pk, None)
                yield message

    def _message(self, part: ClientPart) -> Message | None:
        operation = part.operation
        if operation.state == State.COMPLETED:
            found = self._fetched(part)
            return None if found is None else self._returned(part, "done", found)
        if operation.state == State.FAILED:
            error = (operation.error or {}).get("message") or Reason(operation.reason).label
            return self._returned(part, "failed", note=f"{error} ({operation.pk})")
        if operation.state == State.CANCELLED and operation.reason == Reason.DROPPED:
            return self._returned(part, "dropped")
        return None

    def _fetched(self, part: ClientPart) -> Checkpoint | None:
        """Return what a client came to once it is whole on this machine; where it is lost, redo."""
        if part.pk not in self._fetching:
            found = clients.final(part.pk)
            if found is None:
                self._send_again()
                return None
            call = partial(copies.make_local, found.artifacts_path, found.manifest_digest)
            self._fetching[part.pk] = found, Beside(call, stop=self.nobody_waits)
        found, transfer = self._fetching[part.pk]
        if not transfer.is_done:
            return None
        del self._fetching[part.pk]
        try:
            transfer.result()
        except CheckpointCorrupted as error:
            checkpoints.mark(found.artifacts_path, error)
            return None  # the next look sends it again
        except OSError as error:
            logger.warning("%s: could not fetch what %s saved: %s", self.server.pk, part, error)
            self._num_failures[part.pk] += 1
            if self._num_failures[part.pk] == MAX_FAILURES:
                raise
            self._looked_at = time.monotonic() + FETCH_AGAIN_SECONDS - LOOK_SECONDS
            return None
        return found

    def _send_again(self) -> None:
        """Have done anew what is lost; whatever was told already is told again, to no harm."""
        if self.asked is not None:
            self._out = set(clients.send(self.server, self.asked["directory"], self.asked["parts"]))

    def _returned(
        self, part: ClientPart, how: str, found: Checkpoint | None = None, note: str = ""
    ) -> Message:
        checkpoint = None
        if found is not None:
            path = str(storage.directory(found.artifacts_path))
            checkpoint = {"path": path, "digest": found.manifest_digest}
        return {
            "round": part.round, "client": part.client, "how": how, "note": note,
            "checkpoint": checkpoint,
            "spent": [each.to_json() for each in self._spent(part)],
        }  # fmt: skip

    def _spent(self, part: ClientPart) -> Iterable[Any]:
        if not self.server.uses_ledger:
            return []
        return privacy.spent_in(self.server.pk, part.round, part.client)
