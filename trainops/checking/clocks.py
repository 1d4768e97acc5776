"""A clock for a recipe that starts where it is set and moves by the number of its readings."""

import datetime
import time
from itertools import count

STEP_NS = 1_000_000  # per reading


def set_clock(seconds: float) -> None:
    """Have `time.time`, `time.time_ns` and the `now` of datetime start from here.

    Only for modules that are imported later or look the clock up when they read it. Clocks that
    measure durations stay.
    """
    start, readings = round(seconds * 1e9), count(1)
    time.time_ns = lambda: start + next(readings) * STEP_NS
    time.time = lambda: time.time_ns() / 1e9
    datetime.datetime, datetime.date = Datetime, Date  # type: ignore[misc]


class Datetime(datetime.datetime):
    """Reads `time.time`, which the class that it replaces does not."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> "Datetime":
        return cls.fromtimestamp(time.time(), tz)

    @classmethod
    def today(cls) -> "Datetime":
        return cls.fromtimestamp(time.time())


class Date(datetime.date):
    """Reads `time.time`, which the class that it replaces does not."""

    @classmethod
    def today(cls) -> "Date":
        return cls.fromtimestamp(time.time())
