"""The outcome of an attempt, from its process's last message and exit status."""

import re
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from apps.operations.lifecycle import Handback, Reason, ReportedError
from trainops.process import exit_codes
from trainops.process.protocol import Ended, Failed, Stopped, Succeeded
from trainops.signal_names import signal_name

SIGNALS = {
    -signal.SIGKILL: Reason.PROCESS_KILLED,
    -signal.SIGSEGV: Reason.SEGMENTATION_FAULT,
    -signal.SIGBUS: Reason.SEGMENTATION_FAULT,
    -signal.SIGILL: Reason.SEGMENTATION_FAULT,
    -signal.SIGFPE: Reason.SEGMENTATION_FAULT,
    -signal.SIGABRT: Reason.SEGMENTATION_FAULT,
    -signal.SIGALRM: Reason.LEASE_LOST,  # its own deadline: the lease was not renewed
}
EXITS = {exit_codes.ERROR: Reason.PLATFORM_ERROR, exit_codes.LEASE_LOST: Reason.LEASE_LOST}
VMSTAT = Path("/proc/vmstat")
CGROUPS, OWN_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
CGROUP = re.compile(r"^0::(/.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Completed:
    """It is done; `reason` says why, where that is before all was done."""

    result: Mapping[str, object]
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
    error: ReportedError | None = None


@dataclass(frozen=True, slots=True)
class Superseded:
    """Another attempt owns the operation, or none does: nothing is to be written."""


AttemptOutcome = Completed | Cancelled | Interrupted | Superseded


def of_message(
    message: Ended,
    *,
    is_asked: bool,
    is_out_of_time: bool,
    memory_ran_out: str = "",
    handback: Handback | None = None,
) -> AttemptOutcome:
    """Return the outcome that a child sent.

    is_asked: its supervisor asked it to save and stop; memory_ran_out: see `MemoryWatch.ran_out`;
    handback: for the platform, not because its worker was stopped.
    """
    match message:
        case Succeeded(result=result):
            is_spent = result.get("reason") == Reason.PRIVACY_BUDGET
            return Completed(result, Reason.PRIVACY_BUDGET if is_spent else Reason.NONE)
        case Stopped() if is_out_of_time:
            return Interrupted(Reason.TIME_LIMIT, "it reached its time limit")
        case Stopped():
            return _stopped(message, is_asked=is_asked, handback=handback)
        case Failed():
            return _failed(message, memory_ran_out=memory_ran_out)


def _stopped(message: Stopped, *, is_asked: bool, handback: Handback | None) -> AttemptOutcome:
    match message:
        case Stopped(directive="CANCEL"):
            return Cancelled(Reason.CANCELLED_BY_PERSON, "stopped at a safe point")
        case Stopped(is_signalled=True) if not is_asked:
            return Interrupted(Reason.SHUTDOWN, "stopped because its process got a signal to stop")
        case Stopped() if not is_asked:
            return Interrupted(Reason.LEASE_LOST, "stopped because its lease was not renewed")
        case Stopped() if handback is not None:
            return Interrupted(handback.reason, handback.note)
        case _:
            return Interrupted(Reason.SHUTDOWN, "stopped because its worker was stopped or drained")


def _failed(message: Failed, *, memory_ran_out: str) -> Interrupted:
    reason, note = Reason(message.code), message.message
    if reason is Reason.PROCESS_KILLED and memory_ran_out:  # one of its ranks
        reason, note = Reason.OUT_OF_MEMORY, f"{note}; {memory_ran_out}"
    error = ReportedError(code=str(reason), message=note, traceback=message.traceback)
    return Interrupted(reason, note, error)


def of_exit(exit_code: int | None, *, memory_ran_out: str) -> AttemptOutcome:
    """Return the outcome of a child that died without a message.

    memory_ran_out: see `MemoryWatch.ran_out`.
    """
    if exit_code is None:
        return Interrupted(Reason.PLATFORM_ERROR, "the process that starts children died")
    if exit_code == -signal.SIGKILL and memory_ran_out:
        note = f"its process ended by SIGKILL; {memory_ran_out}"
        return Interrupted(Reason.OUT_OF_MEMORY, note)
    if exit_code < 0:
        reason = SIGNALS.get(exit_code, Reason.PLATFORM_ERROR)
        return Interrupted(reason, f"its process ended by {signal_name(-exit_code)}")
    if exit_code in EXITS:
        return Interrupted(EXITS[exit_code], f"its process ended with exit code {exit_code}")
    return Interrupted(
        Reason.PROCESS_EXITED,
        f"the program exited with code {exit_code}: the recipe, or a library that it uses, ended "
        "the process (such as os._exit or sys.exit) before the operation was done",
    )


@dataclass(slots=True)
class MemoryWatch:
    """Whether the kernel killed anything for want of memory since this was made.

    It counts the processes of this worker's cgroup; where that has no counter, of the machine.
    """

    before: int = field(default_factory=lambda: _num_oom_kills())

    def second_died(self) -> None:
        """Take one kill, if there was one, for that of the attempt's second process.

        Only one: the kernel may have killed the attempt's own process right after it.
        """
        self.before += bool(self.ran_out())

    def ran_out(self) -> str:
        """Return what the kernel did; empty if it killed nothing."""
        if _num_oom_kills() <= self.before:
            return ""
        where = "on this machine" if _oom_counters() == VMSTAT else "of this worker"
        return f"the kernel killed processes for memory {where} meanwhile"


def _num_oom_kills() -> int:
    try:
        counters = dict(line.split() for line in _oom_counters().read_text().splitlines())
    except OSError:
        return 0
    return int(counters.get("oom_kill", 0))


def _oom_counters() -> Path:
    """Return the counters of this worker's cgroup (version 2), or those of the machine."""
    with suppress(OSError):
        if found := CGROUP.search(OWN_CGROUPS.read_text()):
            events = CGROUPS / found[1].lstrip("/") / "memory.events"
            if events.is_file():
                return events
    return VMSTAT
