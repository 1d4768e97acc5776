"""Exit codes of an attempt's processes that end without a message; others are those of recipes."""

ERROR = 70  # EX_SOFTWARE: an error of the platform, whose traceback is in the log
LEASE_LOST = 75  # EX_TEMPFAIL: the lease was not renewed


def of(error: BaseException) -> int:
    """Return the exit code of a process that an error ends: what `sys.exit` asked for, or ERROR."""
    if not isinstance(error, SystemExit):
        return ERROR
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1  # as Python itself exits
