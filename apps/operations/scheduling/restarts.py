"""What follows when an attempt ended without its operation being done. Pure."""

from dataclasses import dataclass
from typing import TypedDict

from apps.operations.lifecycle import Reason
from trainops import backoff

# Saved and handed back for the platform: no penalty.
FREE = frozenset({Reason.SHUTDOWN, Reason.PREEMPTED, Reason.BUDGET_USED_UP})
PLATFORM = frozenset(
    {
        Reason.WORKER_LOST,
        Reason.LEASE_LOST,
        Reason.PLATFORM_ERROR,
        Reason.STORAGE_ERROR,
        Reason.DATASET_AWAY,
    }
)
CRASH = frozenset(
    {
        Reason.PROCESS_KILLED,
        Reason.PROCESS_EXITED,
        Reason.SEGMENTATION_FAULT,
        Reason.OUT_OF_MEMORY,
        Reason.STALLED,
    }
)
ERROR = frozenset({Reason.JOB_ERROR, Reason.NON_FINITE_LOSS, Reason.EXPLODING_NORM})
PLATFORM_BUDGET = 10  # losses without progress; a flaky network is not the operation's fault
JITTER = 0.2
MEMORY_BUDGET = 1  # what did not fit twice will not fit a third time


class RestartFields(TypedDict):
    """The section `restart` of a config; see `RestartConfig`."""

    policy: str
    max_restarts: int


@dataclass(frozen=True, slots=True)
class Restart:
    delay_seconds: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    note: str


def after(
    reason: Reason,
    *,
    restart: RestartFields,
    restarts_used: int,
    first_delay: float,
    longest_delay: float,
) -> Restart | GiveUp:
    """Decide by the operation's restart policy; `restarts_used` counts since the last progress."""
    if reason in FREE:
        return Restart(0.0)
    if not _is_covered(reason, restart["policy"]):
        return GiveUp(f"{reason.label}; restart policy: {restart['policy']}")
    budget = _budget(reason, restart["max_restarts"])
    if restarts_used >= budget:
        return GiveUp(f"{reason.label}; no progress after {restarts_used} restarts in a row")
    delay = backoff.seconds(
        restarts_used + 1, first=first_delay, longest=longest_delay, jitter=JITTER
    )
    return Restart(delay)


def _is_covered(reason: Reason, policy: str) -> bool:
    if policy == "never":
        return False
    return reason in PLATFORM | CRASH or (policy == "on_failure" and reason in ERROR)


def _budget(reason: Reason, max_restarts: int) -> int:
    if reason is Reason.OUT_OF_MEMORY:
        return min(MEMORY_BUDGET, max_restarts)
    return max(PLATFORM_BUDGET, max_restarts) if reason in PLATFORM else int(max_restarts)
