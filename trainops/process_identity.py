"""Which process this is, so that another one on the same machine can tell that it has ended.

A process id alone says nothing: it is reused, and it is another process's in another
container. Linux only; elsewhere nothing is known of any process.
"""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypedDict

PROC = Path("/proc")
ENDED = frozenset("ZX")  # a zombie computes nothing any more
STATE, GROUP, STARTED = 0, 2, 19  # fields of /proc/PID/stat after the command's name


class Machine(TypedDict, total=False):
    """What process ids are unique in: one boot of one machine, and one container there."""

    boot_id: str
    pid_namespace: str


class ProcessIdentity(Machine, total=False):
    """What tells a process from every other one; empty if not known."""

    pid: int
    started: int  # clock ticks since the boot


def identity() -> ProcessIdentity:
    """Return the identity of this process."""
    started = _started(os.getpid())
    return {} if started is None else {**_machine(), "pid": os.getpid(), "started": started}


def has_ended(process: ProcessIdentity) -> bool:
    """Whether a process that once had this identity certainly runs no more.

    False also where nothing can be known: it is on another machine, or in another container.
    """
    machine = _machine()
    if not machine or any(process.get(name) != value for name, value in machine.items()):
        return False
    pid = int(process["pid"])
    fields = _fields(PROC / str(pid) / "stat")
    if not fields:
        return _is_nobody(os.kill, pid)
    return fields[STATE] in ENDED or int(fields[STARTED]) != process["started"]


def group_has_ended(leader_pid: int) -> bool:
    """Whether no process of a process group on this machine is left, zombies aside."""
    readable = [fields for path in PROC.glob("[0-9]*/stat") if (fields := _fields(path))]
    members = [fields for fields in readable if int(fields[GROUP]) == leader_pid]
    if not members:  # that can be seen: those of other users may be hidden
        return _is_nobody(os.killpg, leader_pid)
    return all(fields[STATE] in ENDED for fields in members)


def _is_nobody(send: Callable[[int, int], None], number: int) -> bool:
    """Whether the kernel knows of no such process or group; it also tells of hidden ones."""
    try:
        send(number, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


@cache
def _machine() -> Machine:
    try:
        boot_id = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        return {"boot_id": boot_id, "pid_namespace": str((PROC / "self/ns/pid").readlink())}
    except OSError:
        return {}


def _started(pid: int) -> int | None:
    """Return when a process started, in clock ticks since the boot; None where it has ended."""
    fields = _fields(PROC / str(pid) / "stat")
    if not fields or fields[STATE] in ENDED:
        return None
    return int(fields[STARTED])


def _fields(path: Path) -> list[str]:
    """Return the fields after the command's name, which may hold spaces and parentheses."""
    try:
        return path.read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
