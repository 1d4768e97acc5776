"""The server's side of a distributed round: clients out at once, what they send in the old order.

Nothing here is state. Who was sent out is asked for again after a resume, and found; what a round
went on without is in the record.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from trainops.kinds.federated.options import FederatedOptions
from trainops.kinds.federated.record import Record
from trainops.runtime.subtasks import Delegates, Part, Returned

WAIT_SECONDS = 1.0  # at one go: what runs is to hear of a cancel meanwhile
ASK_AGAIN_SECONDS = 5.0  # for a checkpoint, where one could not be saved

Plan = Callable[[Record], Sequence[Part]]  # -> what those clients do that may go out


class ClientFailed(RuntimeError):
    """A client's own operation failed, and the round cannot go on without it."""

    def __init__(self, name: str, returned: Returned, more: str = "") -> None:
        super().__init__(f"{name} failed in round {returned.round}: {returned.note}{more}")


class Distributed:
    """Sends the clients of the round out, and knows which of them have returned."""

    def __init__(
        self,
        config: FederatedOptions,
        delegates: Delegates,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config, self.delegates, self._clock = config, delegates, clock
        self.asked = 0  # for checkpoints that clients can begin with
        self._asked_at, self._asked_for = 0.0, 0
        self._number = 0  # of the round whose clients are out
        self._sent: set[int] = set()
        self._returned: dict[int, Returned] = {}
        self._is_told_to_drop = False

    def next(self, record: Record, plan: Plan) -> Returned | None:
        """Return what became of the client that is the next in order; None where it is not known.

        Waits for a moment. Raises ClientFailed.
        """
        if self._number != record.number and not self._send(record, plan):
            return None
        if record.client not in self._sent:  # the budget had no room for it when others went out
            self._send_more(record, plan)
        if record.client not in self._returned:
            self._hear(record)
        returned = self._returned.get(-1 if record.client is None else record.client)
        if returned is not None and returned.how == "failed":
            return replace(returned, how="dropped")  # else it would have been raised
        return returned

    def is_next_out(self, record: Record) -> bool:
        """Whether the next client was sent out, or nobody of its round yet."""
        return self._number != record.number or record.client in self._sent

    def place(self, record: Record) -> str:
        """Return where the round is, for people."""
        text = f"round {record.number} of {self.config.rounds}"
        if self._number != record.number:
            problem = self.delegates.problem
            return f"{text}, waits for a checkpoint: {problem}" if problem else text
        num_done = len(record.taken) + self._num_done(record)
        text = f"{text}, {num_done} of {len(record.chosen)} clients done"
        if self._is_overdue(record) and num_done < self._needed(record):
            return f"{text}; past its time, and waits for at least {self._needed(record)}"
        return text

    def _send(self, record: Record, plan: Plan) -> bool:
        """Send the round's clients out as soon as a checkpoint holds what they begin with."""
        saved, begins = self.delegates.saved_step, record.schedule.steps_before(record.number)
        if saved is None or saved < begins:
            self._ask_for_a_checkpoint(record.number)
            return False
        self._number, self._returned, self._is_told_to_drop = record.number, {}, False
        self._sent = set()
        self._send_more(record, plan)
        return True

    def _send_more(self, record: Record, plan: Plan) -> None:
        parts = [part for part in plan(record) if part.client not in self._sent]
        self._sent |= {part.client for part in parts}
        if parts:
            self.delegates.send(parts)

    def _ask_for_a_checkpoint(self, number: int) -> None:
        """Have one saved, now and then again; where one is on its way, wait."""
        is_new, moment = self._asked_for != number, self._clock()
        if is_new or moment - self._asked_at > ASK_AGAIN_SECONDS:
            self._asked_at, self._asked_for, self.asked = moment, number, self.asked + 1
        else:
            self.delegates.heard(WAIT_SECONDS / 20)

    def _hear(self, record: Record) -> None:
        for each in self.delegates.heard(WAIT_SECONDS):
            if each.round == record.number:
                self._returned[each.client] = each
        self._require_enough(record)
        if self._is_overdue(record) and not self._is_told_to_drop:
            away = [client for client in self._yet(record) if client not in self._returned]
            if len(record.taken) + self._num_done(record) >= self._needed(record):
                self._is_told_to_drop = True
                self.delegates.drop(record.number, away)

    def _require_enough(self, record: Record) -> None:
        """Raise ClientFailed where one failed that the round needs."""
        failed = [each for each in self._returned.values() if each.how == "failed"]
        if not failed:
            return
        name = record.name_of(failed[0].client)
        if self.config.round_timeout is None:
            raise ClientFailed(name, failed[0])
        gone = {each.client for each in self._returned.values() if each.how != "done"}
        left = len(record.taken) + len(set(self._yet(record)) - gone)
        if left < self._needed(record):
            more = f"; of the round's {len(record.chosen)} clients {left} are left"
            more = f"{more}, and min_clients is {self.config.min_clients}"
            raise ClientFailed(name, failed[0], more)

    def _is_overdue(self, record: Record) -> bool:
        limit = self.config.round_timeout
        return limit is not None and self.delegates.age_seconds(record.number) > limit

    def _needed(self, record: Record) -> int:
        return min(self.config.min_clients, len(record.chosen))

    def _num_done(self, record: Record) -> int:
        """Return how many are done that the server has not taken yet."""
        found = (self._returned.get(client) for client in self._yet(record))
        return sum(each is not None and each.how == "done" for each in found)

    def _yet(self, record: Record) -> tuple[int, ...]:
        return record.chosen[record.done :]
