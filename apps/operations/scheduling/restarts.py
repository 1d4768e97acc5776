"""What follows when an attempt ended without its operation being done. Pure."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apps.operations.lifecycle import Reason

FREE = frozenset({Reason.SHUTDOWN})  # the house stopped it: no penalty
HOUSE = frozenset({Reason.WORKER_LOST, Reason.LEASE_LOST, Reason.HOUSE_ERROR, Reason.STORAGE_ERROR})
CRASH = frozenset(
    {Reason.PROCESS_KILLED, Reason.SEGMENTATION_FAULT, Reason.OUT_OF_MEMORY, Reason.STALLED}
)
ERROR = frozenset({Reason.JOB_ERROR, Reason.NON_FINITE_LOSS})
HOUSE_BUDGET = 10  # losses without progress; a flaky network is not the operation's fault
MEMORY_BUDGET = 1  # what did not fit twice will not fit a third time


@dataclass(frozen=True, slots=True)
class Restart:
    delay_seconds: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    note: str


def after(
    reason: Reason,
    *,
    restart: Mapping[str, Any],
    restarts_used: int,
    first_delay: float,
    longest_delay: float,
) -> Restart | GiveUp:
    """Decide by the operation's restart policy; `restarts_used` counts since the last progress."""
    if reason in FREE:
        return Restart(0.0)
    if not _is_covered(reason, restart["policy"]):
        return GiveUp(f"{reason.label}; its restart policy is {restart['policy']}")
    budget = _budget(reason, restart["max_restarts"])
    if restarts_used >= budget:
        return GiveUp(f"{reason.label}; {restarts_used} restarts in a row brought no progress")
    delay = min(first_delay * 2**restarts_used, longest_delay)
    return Restart(delay * random.uniform(0.8, 1.2))  # noqa: S311 - jitter, so that many do not return at once


def _is_covered(reason: Reason, policy: str) -> bool:
    if policy == "never":
        return False
    return reason in HOUSE | CRASH or (policy == "on_failure" and reason in ERROR)


def _budget(reason: Reason, max_restarts: int) -> int:
    if reason is Reason.OUT_OF_MEMORY:
        return min(MEMORY_BUDGET, max_restarts)
    return max(HOUSE_BUDGET, max_restarts) if reason in HOUSE else int(max_restarts)
