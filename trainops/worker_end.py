"""When a worker ends by itself: at a moment, or after some time without work.

Only the standard library: `up` reads its options before the environment exists.
"""

import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime

UNTIL, IDLE_EXIT = "TRAINOPS_WORKER_UNTIL", "TRAINOPS_WORKER_IDLE_EXIT"
SECONDS = {"s": 1, "m": 60, "h": 3600}
DURATION = re.compile(r"([1-9][0-9]{0,8})([smh])")
TIME_OF_DAY = re.compile(r"(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d)?")
ALLOWED_END = (
    "allowed: the next such time of this machine (04:30), a date with a time "
    "(2026-11-27T04:30, with an offset if it is not local), or a duration (90s, 30m, 2h)"
)


def moment(text: str, *, now: float) -> float:
    """Return when a worker's time ends, in Unix time.

    Args:
        text: a time of day, a date with a time, or a duration.
        now: Unix time; a duration counts from it, and a time of day is the next one after it.

    Raises:
        ValueError: names what is allowed.
    """
    if TIME_OF_DAY.fullmatch(text):
        return _next(text, now)
    if re.match(r"\d{4}-?\d\d-?\d\d[T ]\d", text):
        try:
            return datetime.fromisoformat(text).timestamp()  # without an offset: local
        except (ValueError, OverflowError):
            raise ValueError(ALLOWED_END) from None
    try:
        return now + seconds(text)
    except ValueError:
        raise ValueError(ALLOWED_END) from None


def seconds(text: str) -> float:
    """Return the seconds of a duration such as 90s, 30m or 2h. Raises ValueError."""
    found = DURATION.fullmatch(text)
    if found is None:
        raise ValueError("allowed: a whole number and a unit, such as 90s, 30m or 2h")
    return float(int(found[1]) * SECONDS[found[2]])


def written(moment: float) -> str:
    """Return a moment as `moment` reads it, without loss and in UTC."""
    return datetime.fromtimestamp(moment, UTC).isoformat()


def ends_at(environment: Mapping[str, str], *, now: float) -> float | None:
    """Return what TRAINOPS_WORKER_UNTIL says, in Unix time; None: no end. Raises ValueError."""
    text = environment.get(UNTIL, "").strip()
    try:
        return moment(text, now=now) if text else None
    except ValueError as problem:
        raise ValueError(f"{UNTIL} is {text!r}; {problem}") from None


def idle_exit_seconds(environment: Mapping[str, str]) -> float | None:
    """Return what TRAINOPS_WORKER_IDLE_EXIT says; None: a worker waits for work without end.

    Raises ValueError.
    """
    text = environment.get(IDLE_EXIT, "").strip()
    try:
        return seconds(text) if text else None
    except ValueError as problem:
        raise ValueError(f"{IDLE_EXIT} is {text!r}; {problem}") from None


def _next(text: str, now: float) -> float:
    """Return the next such time of day: today or tomorrow, also where the clocks change."""
    hour, minute, second = (int(each) for each in f"{text}:00".split(":")[:3])
    year, month, day = time.localtime(now)[:3]
    of_days = (
        time.mktime((year, month, day + num_days, hour, minute, second, 0, 0, -1))
        for num_days in range(3)
    )
    return next(each for each in of_days if each > now)
