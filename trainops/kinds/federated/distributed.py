"""The server's side of a distributed round: clients out at once, what they send in the old order.

Nothing here is state. Who was sent out is asked for again after a resume, and found; what a round
went on without is in the record.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from trainops.kinds.federated.options import FederatedOptions
from trainops.kinds.federated.progress import FederatedProgress
from trainops.runtime.subtasks import Subtask, SubtaskPort, SubtaskResult

WAIT_SECONDS = 1.0  # at one go: what runs is to hear of a cancel meanwhile
ASK_AGAIN_SECONDS = 5.0  # for a checkpoint, where one could not be saved

Plan = Callable[[FederatedProgress], Sequence[Subtask]]  # -> what those clients do that may go out


class ClientFailed(RuntimeError):
    """A client's own operation failed, and the round cannot go on without it."""

    def __init__(self, name: str, result: SubtaskResult, more: str = "") -> None:
        super().__init__(f"{name} failed in round {result.group}: {result.note}{more}")


class Distributed:
    """Sends the clients of the round out, and knows which of them have returned."""

    def __init__(
        self,
        config: FederatedOptions,
        subtasks: SubtaskPort,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config, self.subtasks, self._clock = config, subtasks, clock
        self.asked = 0  # for checkpoints that clients can begin with
        self._asked_at, self._asked_for = 0.0, 0
        self._number = 0  # of the round whose clients are out
        self._sent: set[int] = set()
        self._results: dict[int, SubtaskResult] = {}
        self._has_dropped = False

    def next(self, progress: FederatedProgress, plan: Plan) -> SubtaskResult | None:
        """Return what became of the client that is the next in order; None where it is not known.

        Waits for a moment. Raises ClientFailed.
        """
        if self._number != progress.number and not self._send(progress, plan):
            return None
        if progress.client not in self._sent:  # the budget had no room for it when others went out
            self._send_more(progress, plan)
        if progress.client not in self._results:
            self._hear(progress)
        result = self._results.get(-1 if progress.client is None else progress.client)
        if result is not None and result.outcome == "failed":
            return replace(result, outcome="dropped")  # else it would have been raised
        return result

    def is_next_out(self, progress: FederatedProgress) -> bool:
        """Whether the next client was sent out, or no client of its round yet."""
        return self._number != progress.number or progress.client in self._sent

    def place(self, progress: FederatedProgress) -> str:
        """Return where the round is, for people."""
        text = progress.rounds_completed
        if self._number != progress.number:
            problem = self.subtasks.problem
            return f"{text}, waits for a checkpoint: {problem}" if problem else text
        num_done = len(progress.taken) + self._num_done(progress)
        text = f"{text}, {num_done} of {len(progress.chosen)} clients done"
        if self._is_overdue(progress) and num_done < self._needed(progress):
            return f"{text}; past its time, and waits for at least {self._needed(progress)}"
        return text

    def _send(self, progress: FederatedProgress, plan: Plan) -> bool:
        """Send the round's clients out as soon as a checkpoint holds what they begin with."""
        saved, begins = self.subtasks.saved_step, progress.schedule.steps_before(progress.number)
        if saved is None or saved < begins:
            self._ask_for_a_checkpoint(progress.number)
            return False
        self._number, self._results, self._has_dropped = progress.number, {}, False
        self._sent = set()
        self._send_more(progress, plan)
        return True

    def _send_more(self, progress: FederatedProgress, plan: Plan) -> None:
        subtasks = [each for each in plan(progress) if each.index not in self._sent]
        self._sent |= {each.index for each in subtasks}
        if subtasks:
            self.subtasks.start(subtasks)

    def _ask_for_a_checkpoint(self, number: int) -> None:
        """Have one saved, now and then again; where one is on its way, wait."""
        is_new, moment = self._asked_for != number, self._clock()
        if is_new or moment - self._asked_at > ASK_AGAIN_SECONDS:
            self._asked_at, self._asked_for, self.asked = moment, number, self.asked + 1
        else:
            self.subtasks.results(WAIT_SECONDS / 20)

    def _hear(self, progress: FederatedProgress) -> None:
        for each in self.subtasks.results(WAIT_SECONDS):
            if each.group == progress.number:
                self._results[each.index] = each
        self._require_enough(progress)
        if self._is_overdue(progress) and not self._has_dropped:
            away = [client for client in self._yet(progress) if client not in self._results]
            if len(progress.taken) + self._num_done(progress) >= self._needed(progress):
                self._has_dropped = True
                self.subtasks.drop(progress.number, away)

    def _require_enough(self, progress: FederatedProgress) -> None:
        """Raise ClientFailed where one failed that the round needs."""
        failed = [each for each in self._results.values() if each.outcome == "failed"]
        if not failed:
            return
        name = progress.name_of(failed[0].index)
        if self.config.round_timeout is None:
            raise ClientFailed(name, failed[0])
        gone = {each.index for each in self._results.values() if each.outcome != "done"}
        left = len(progress.taken) + len(set(self._yet(progress)) - gone)
        if left < self._needed(progress):
            more = f"; of the round's {len(progress.chosen)} clients {left} are left"
            more = f"{more}, and min_clients is {self.config.min_clients}"
            raise ClientFailed(name, failed[0], more)

    def _is_overdue(self, progress: FederatedProgress) -> bool:
        limit = self.config.round_timeout
        return limit is not None and self.subtasks.age_seconds(progress.number) > limit

    def _needed(self, progress: FederatedProgress) -> int:
        return min(self.config.min_clients, len(progress.chosen))

    def _num_done(self, progress: FederatedProgress) -> int:
        """Return how many are done that the server has not taken yet."""
        found = (self._results.get(client) for client in self._yet(progress))
        return sum(each is not None and each.outcome == "done" for each in found)

    def _yet(self, progress: FederatedProgress) -> tuple[int, ...]:
        return progress.chosen[progress.done :]
