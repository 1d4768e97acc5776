"""What Linux does with the processes of one that dies."""

import ctypes
import os
import signal

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def die_with(parent_pid: int) -> None:
    """Let the kernel kill this process when its parent dies; exit if that happened already."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)


def adopt_orphans() -> None:
    """Be the parent, from now on, of what this process's descendants leave behind."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
