"""What a process died of, in words. Standard library only."""

import signal


def signal_name(number: int) -> str:
    """Return e.g. SIGKILL; real-time signals have no names in Python."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
