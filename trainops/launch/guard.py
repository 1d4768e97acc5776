"""Ends the programs of a supervisor that was killed. Run as a script, standard library only.

Reads lines `+GROUP` and `-GROUP` from its standard input, whose other end only the supervisor
holds. End of file means that the supervisor is gone: the groups still named are asked to stop, so
that operations can be saved, and killed when they take too long. (The kernel's parent-death signal
reaches only direct children, and they may ignore it.)
"""

import os
import signal
import sys
import time
from collections.abc import Iterable

GRACE_SECONDS = 30.0
LOOK_SECONDS = 0.1


def remaining(lines: Iterable[str]) -> set[int]:
    """The process groups that were named as started and not as ended."""
    groups: set[int] = set()
    for line in lines:
        group = int(line[1:])
        if line.startswith("+"):
            groups.add(group)
        else:
            groups.discard(group)
    return groups


def send(group: int, number: int) -> bool:
    """Signal a group (0 only asks); whether it still exists."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True


def end(groups: set[int], grace_seconds: float) -> None:
    """Ask the groups to stop, and kill those that are left after the grace period."""
    left = {group for group in groups if send(group, signal.SIGTERM)}
    deadline = time.monotonic() + grace_seconds
    while left and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
        left = {group for group in left if send(group, 0)}
    for group in left:
        send(group, signal.SIGKILL)


if __name__ == "__main__":
    for stop in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(stop, signal.SIG_IGN)  # it ends when its supervisor does, never before
    grace = float(sys.argv[1]) if len(sys.argv) > 1 else GRACE_SECONDS
    end(remaining(sys.stdin), grace)
