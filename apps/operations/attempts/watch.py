"""What an attempt is held to from outside: its lease, people, the house, and its own limits."""

import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

from django.conf import settings

from apps.operations.attempts.ending import Cancelled, Ending, Interrupted, Superseded
from apps.operations.lifecycle import Reason
from apps.operations.models import Operation
from apps.operations.scheduling.holding import Held
from trainops.process.protocol import now
from trainops.runtime.checkpoint.manifest import CheckpointType


class Watch:
    """Looks at one attempt again and again: whether it must end now, and what its child is told."""

    def __init__(self, held: Held, limits: Mapping[str, Any]) -> None:
        self.held, self.limits = held, limits
        self.spent_before = 0.0  # seconds, by the attempts before this one
        self.told = ""  # the directive that was sent
        self.is_out_of_time = False
        self._started_at = self._moved_at = time.monotonic()
        self._told_at = 0.0
        self._granted_for = held.renewed_at
        self._salvage_at: float | None = None  # boot clock

    @property
    def elapsed_seconds(self) -> float:
        return time.monotonic() - self._started_at

    @property
    def deadline(self) -> float:
        """Boot clock. A grant counts from before the renewal that it rests on was sent."""
        return self.held.renewed_at + settings.THRESHOLDS.child_deadline_seconds

    def moved(self) -> None:
        """Something went on: it is not stalled."""
        self._moved_at = time.monotonic()

    def ending(self, *, is_started: bool, is_waiting: bool) -> Ending | None:
        """Return how the attempt ends, where it must end now.

        Who waits for an upload or for clients is not stalled, however long that takes.
        """
        if is_waiting or not is_started:
            self.moved()
        if (ending := self._ending_at_once()) is not None:
            return ending
        return self._ending_by_stall() if is_started else self._ending_before_the_start()

    def orders(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield what the child is to be told now: more time, and that it save and stop."""
        if self.held.renewed_at > self._granted_for:
            self._granted_for = self.held.renewed_at
            yield "grant", {"until": self.deadline}
        wish = self._wish()
        if wish and wish != self.told:
            self.told, self._told_at = wish, time.monotonic()
            yield "stop", {"directive": wish}
        if self._is_late():
            yield "salvage", {"type": str(CheckpointType.SHUTDOWN)}

    def _ending_at_once(self) -> Ending | None:
        held, cancel_seconds = self.held, self.limits["cancel_timeout_seconds"]
        if held.is_lost:
            return Superseded()
        if now() - held.renewed_at > settings.THRESHOLDS.fence_kill_seconds:
            return Interrupted(Reason.LEASE_LOST, "its lease could not be renewed in time")
        if held.stop == Operation.Stop.KILL:
            return Cancelled(Reason.KILLED_BY_PERSON, "killed")
        if self._is_overdue("CANCEL", cancel_seconds):
            note = f"no safe point within {cancel_seconds:g} s; killed"
            return Cancelled(Reason.CANCEL_TIMEOUT, note)
        if held.must_be_gone_at is not None and now() > held.must_be_gone_at:
            note = "no safe point before its worker had to go; killed"
            return Interrupted(Reason.SHUTDOWN, note)
        return None

    def _ending_before_the_start(self) -> Ending | None:
        """Its child knows nothing yet, so there is nothing to save and nobody to tell."""
        if self.held.stop == Operation.Stop.CANCEL:
            return Cancelled(Reason.CANCELLED_BY_PERSON, "stopped before it began")
        if self.held.must_be_gone_at is not None or self.held.is_to_leave:
            return Interrupted(Reason.SHUTDOWN, "its worker was stopped before it began")
        return None

    def _ending_by_stall(self) -> Ending | None:
        seconds = self.limits["stall_timeout_seconds"]
        if time.monotonic() - self._moved_at <= seconds:
            return None
        return Interrupted(Reason.STALLED, f"no progress for {seconds:g} s")

    def _is_late(self) -> bool:
        """Whether half of the time is gone that a worker's shutdown leaves; told once.

        The loop may reach its safe point in the other half; what is in memory is saved meanwhile.
        """
        gone_at = self.held.must_be_gone_at
        if gone_at is None:
            return False
        if self._salvage_at is None:
            self._salvage_at = (now() + gone_at) / 2
        is_late = now() > self._salvage_at
        self._salvage_at = math.inf if is_late else self._salvage_at
        return is_late

    def _is_overdue(self, directive: str, seconds: float) -> bool:
        return self.told == directive and time.monotonic() - self._told_at > seconds

    def _wish(self) -> str:
        if self.held.stop == Operation.Stop.CANCEL:
            return "CANCEL"
        longest = self.limits.get("max_duration_seconds")
        if longest and self.spent_before + self.elapsed_seconds > longest:
            self.is_out_of_time = True
        is_unwanted = self.held.must_be_gone_at is not None or self.held.is_to_leave
        return "PREEMPT" if self.is_out_of_time or is_unwanted else ""
