"""How an attempt ended, told from what its process said and how it died. Pure."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from apps.operations.lifecycle import Reason
from trainops.signal_names import signal_name

SIGNALS = {
    -signal.SIGKILL: Reason.PROCESS_KILLED,
    -signal.SIGSEGV: Reason.SEGMENTATION_FAULT,
    -signal.SIGBUS: Reason.SEGMENTATION_FAULT,
    -signal.SIGILL: Reason.SEGMENTATION_FAULT,
    -signal.SIGFPE: Reason.SEGMENTATION_FAULT,
    -signal.SIGABRT: Reason.SEGMENTATION_FAULT,
    -signal.SIGALRM: Reason.LEASE_LOST,  # its own deadline: nobody granted it more time
}


@dataclass(frozen=True, slots=True)
class Completed:
    """It is done; `reason` says why, where that is before all was done."""

    result: Mapping[str, Any]
    reason: Reason = Reason.NONE


@dataclass(frozen=True, slots=True)
class Cancelled:
    reason: Reason
    note: str


@dataclass(frozen=True, slots=True)
class Interrupted:
    """It ended without being done; its restart policy says what follows."""

    reason: Reason
    note: str
    error: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Superseded:
    """Another attempt owns the operation, or none does: nothing is to be written."""


Ending = Completed | Cancelled | Interrupted | Superseded


def of_message(message: Mapping[str, Any], *, is_told: bool, is_out_of_time: bool) -> Ending:
    """Return the ending that a child told; `is_told`: its supervisor told it to save and stop."""
    match message["how"]:
        case "succeeded":
            result = message["result"]
            is_spent = result.get("reason") == Reason.PRIVACY_BUDGET
            return Completed(result, Reason.PRIVACY_BUDGET if is_spent else Reason.NONE)
        case "stopped" if is_out_of_time:
            return Interrupted(Reason.TIME_LIMIT, "it reached its time limit")
        case "stopped" if message["directive"] == "CANCEL":
            return Cancelled(Reason.CANCELLED_BY_PERSON, "stopped at a safe point")
        case "stopped" if not is_told and message.get("is_signalled"):
            return Interrupted(Reason.SHUTDOWN, "stopped because its process got a signal to stop")
        case "stopped" if not is_told:
            return Interrupted(Reason.LEASE_LOST, "stopped because its lease was not renewed")
        case "stopped":
            return Interrupted(Reason.SHUTDOWN, "stopped because its worker was stopped or drained")
    error = {key: message[key] for key in ("code", "message", "traceback")}
    return Interrupted(Reason(message["code"]), message["message"], error)


def of_exit(exit_code: int | None, *, memory_ran_out: bool) -> Ending:
    """Return the ending of a child that died without a word."""
    if exit_code is None:
        return Interrupted(Reason.HOUSE_ERROR, "the process that starts children died")
    if exit_code == -signal.SIGKILL and memory_ran_out:
        return Interrupted(Reason.OUT_OF_MEMORY, "the kernel killed it: memory ran out")
    reason = SIGNALS.get(exit_code, Reason.HOUSE_ERROR)
    how = signal_name(-exit_code) if exit_code < 0 else f"exit code {exit_code}"
    return Interrupted(reason, f"its process ended by {how}")


@dataclass(slots=True)
class MemoryWatch:
    """Whether the kernel killed anything for want of memory since this was made."""

    before: int = field(default_factory=lambda: _num_oom_kills())

    def second_died(self) -> None:
        """Take one kill, if there was one, for that of the attempt's second process.

        Only one: the kernel may have killed the attempt's own process right after it.
        """
        self.before += self.ran_out()

    def ran_out(self) -> bool:
        return _num_oom_kills() > self.before


def _num_oom_kills() -> int:
    try:
        counters = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    except OSError:
        return 0
    return int(counters.get("oom_kill", 0))
