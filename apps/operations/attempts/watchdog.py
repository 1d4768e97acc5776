"""Watch an attempt from outside: its lease, stop requests, shutdown, and its own limits."""

import math
import time
from collections.abc import Iterator
from typing import NotRequired, TypedDict

from django.conf import settings

from apps.operations.attempts.outcomes import AttemptOutcome, Cancelled, Interrupted, Superseded
from apps.operations.lifecycle import Reason
from apps.operations.models import Operation
from apps.operations.scheduling.slots import RunningAttempt
from trainops.process.protocol import Directive, Grant, Salvage, Stop, ToChild, now
from trainops.runtime.checkpoint.manifest import CheckpointType
from trainops.runtime.durations import max_seconds


class AttemptLimits(TypedDict):
    """The section `limits` of a config."""

    stall_timeout_seconds: float
    cancel_timeout_seconds: float
    max_duration_seconds: NotRequired[float | None]
    max_duration: NotRequired[str | None]


class Watchdog:
    """Checks one attempt repeatedly: whether it must end now, and what to send to its child."""

    def __init__(self, running: RunningAttempt, limits: AttemptLimits) -> None:
        self.running, self.limits = running, limits
        self.longest_seconds = max_seconds(limits)  # of all attempts
        self.spent_before = 0.0  # seconds, by the attempts before this one
        self.sent: Directive | None = None  # the last directive
        self.is_asked_to_leave = False  # to save and stop, not to be cancelled; see `messages`
        self.is_out_of_time = False
        self._started_at = self._moved_at = time.monotonic()
        self._sent_at = 0.0
        self._granted_for = running.renewed_at
        self._salvage_at: float | None = None  # boot clock

    @property
    def elapsed_seconds(self) -> float:
        return time.monotonic() - self._started_at

    @property
    def deadline(self) -> float:
        """Boot clock. A grant counts from before the renewal that it rests on was sent."""
        return self.running.renewed_at + settings.THRESHOLDS.child_deadline_seconds

    def moved(self) -> None:
        """Something went on: it is not stalled."""
        self._moved_at = time.monotonic()

    def outcome(self, *, is_started: bool, is_waiting: bool) -> AttemptOutcome | None:
        """Return how the attempt ends, where it must end now.

        An attempt that waits for an upload or for subtasks is not stalled.
        """
        if is_waiting or not is_started:
            self.moved()
        if (outcome := self._outcome_at_once()) is not None:
            return outcome
        return self._ending_by_stall() if is_started else self._ending_before_the_start()

    def messages(self) -> Iterator[ToChild]:
        """Yield what is to be sent to the child now: more time, and to save and stop."""
        if self.running.renewed_at > self._granted_for:
            self._granted_for = self.running.renewed_at
            yield Grant(self.deadline)
        directive = self._directive()
        if directive is not None and directive != self.sent:
            self.sent, self._sent_at = directive, time.monotonic()
            self.is_asked_to_leave |= directive == "PREEMPT"
            yield Stop(directive)
        if self._is_late():
            yield Salvage(CheckpointType.SHUTDOWN)

    def _outcome_at_once(self) -> AttemptOutcome | None:
        running, cancel_seconds = self.running, self.limits["cancel_timeout_seconds"]
        if running.is_lost:
            return Superseded()
        if now() - running.renewed_at > settings.THRESHOLDS.fence_kill_seconds:
            return Interrupted(Reason.LEASE_LOST, "its lease could not be renewed in time")
        if running.stop == Operation.Stop.KILL:
            return Cancelled(Reason.KILLED_BY_PERSON, "killed")
        if self._is_overdue("CANCEL", cancel_seconds):
            note = f"no safe point within {cancel_seconds:g} s; killed"
            return Cancelled(Reason.CANCEL_TIMEOUT, note)
        if running.must_be_gone_at is not None and now() > running.must_be_gone_at:
            note = "no safe point before its worker had to go; killed"
            return Interrupted(Reason.SHUTDOWN, note)
        return None

    def _ending_before_the_start(self) -> AttemptOutcome | None:
        """Its child has not started the job, so there is nothing to save or to stop."""
        if self.running.stop == Operation.Stop.CANCEL:
            return Cancelled(Reason.CANCELLED_BY_PERSON, "stopped before it began")
        if self.running.is_unwanted:
            return Interrupted(Reason.SHUTDOWN, "its worker was stopped before it began")
        if (handback := self.running.handback) is not None:
            return Interrupted(handback.reason, f"{handback.note}; before it began")
        return None

    def _ending_by_stall(self) -> AttemptOutcome | None:
        seconds = self.limits["stall_timeout_seconds"]
        if time.monotonic() - self._moved_at <= seconds:
            return None
        return Interrupted(Reason.STALLED, f"no progress for {seconds:g} s")

    def _is_late(self) -> bool:
        """Whether half of the time is gone that a worker's shutdown leaves; True once.

        The loop may reach its safe point in the other half; what is in memory is saved meanwhile.
        """
        gone_at = self.running.must_be_gone_at
        if gone_at is None:
            return False
        if self._salvage_at is None:
            self._salvage_at = (now() + gone_at) / 2
        is_late = now() > self._salvage_at
        self._salvage_at = math.inf if is_late else self._salvage_at
        return is_late

    def _is_overdue(self, directive: str, seconds: float) -> bool:
        return self.sent == directive and time.monotonic() - self._sent_at > seconds

    def _directive(self) -> Directive | None:
        if self.running.stop == Operation.Stop.CANCEL:
            return "CANCEL"
        longest = self.longest_seconds
        if longest and self.spent_before + self.elapsed_seconds > longest:
            self.is_out_of_time = True
        is_unwanted = self.running.is_unwanted or self.running.handback is not None
        return "PREEMPT" if self.is_out_of_time or is_unwanted else None
