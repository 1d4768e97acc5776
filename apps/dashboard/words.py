"""How the pages say numbers, moments and states. Pure."""

import math
from datetime import datetime
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.operations.lifecycle import State
from apps.operations.scheduling.waiting import Wait

MINUTE, HOUR, DAY = 60, 3600, 86400
UNITS = ("B", "kB", "MB", "GB", "TB", "PB")

# state → (word, colour of Tabler)
BADGES = {
    State.PENDING: ("Queued", "secondary"),
    State.RUNNING: ("Running", "blue"),
    State.RESUMING: ("Resuming", "azure"),
    State.COMPLETED: ("Completed", "green"),
    State.FAILED: ("Failed", "red"),
    State.CANCELLED: ("Cancelled", "orange"),
}
# What keeps a waiting operation from being taken, in a few words; what passes by itself has none.
OBSTACLES = {
    Wait.NO_WORKER: "no worker is running",
    Wait.NO_WORKER_FOR_KIND: "no worker serves its kind",
    Wait.NO_WORKER_WITH_LABEL: "no worker has its label",
    Wait.NO_GPU: "no worker has a GPU",
    Wait.GPU_TOO_SMALL: "no GPU is large enough",
    Wait.MEMORY_TOO_SMALL: "no machine is large enough",
    Wait.WORKERS_UNREACHABLE: "no worker answers",
    Wait.WORKERS_DRAINING: "its workers are draining",
    Wait.STORAGE_AWAY: "the storage is away",
    Wait.DISK_SHORT: "the disk is short",
}
STOPPING = {"cancel": ("Cancelling", "orange"), "kill": ("Being killed", "red")}


def duration(seconds: float | None) -> str:
    """Return e.g. "400 ms", "12 s", "4 min 10 s", "1 h 52 min", "3 d 4 h"."""
    if seconds is None or not math.isfinite(seconds):
        return "—"
    seconds = max(0.0, seconds)
    if 0 < seconds < 1:
        return f"{max(1, round(seconds * 1000))} ms"
    if seconds < 10:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    if seconds < MINUTE:
        return f"{seconds:.0f} s"
    whole = round(seconds)
    if whole < HOUR:
        return _two(whole // MINUTE, "min", whole % MINUTE, "s")
    if whole < DAY:
        return _two(whole // HOUR, "h", whole % HOUR // MINUTE, "min")
    return _two(whole // DAY, "d", whole % DAY // HOUR, "h")


def roughly(seconds: float | None) -> str:
    """Return a duration without seconds where there are minutes: estimates are no measurements."""
    if seconds is None or not MINUTE <= seconds < HOUR:
        return duration(seconds)
    return f"{round(seconds / MINUTE)} min"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large} {large_unit}" + (f" {small} {small_unit}" if small else "")


def size(num_bytes: float | None) -> str:
    """Return e.g. "412 MB": powers of 1000, three digits."""
    if num_bytes is None:
        return "—"
    power = 0
    while num_bytes >= 999.5 and power < len(UNITS) - 1:
        num_bytes /= 1000
        power += 1
    return f"{num_bytes:.3g} {UNITS[power]}"


def number(value: Any) -> str:
    """Return a metric's value with four significant digits; whole numbers with separators."""
    if value is None or value == "":
        return "—"
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    text = f"{value:.4g}"
    return text if "e" not in text or abs(value) < 1e-3 else f"{value:,.0f}"


def share(value: Any) -> str:
    """Return a fraction as percent with three digits: "12.3 %", "-0.41 %"; "—" where there is none.

    In a template, a figure that an older result does not have is "".
    """
    if value is None or value == "":
        return "—"
    percent = 100 * value
    digits = 0 if abs(percent) >= 99.95 else 1 if abs(percent) >= 9.995 else 2
    return f"{percent:,.{digits}f} %"


def rate(steps_per_second: float | None, unit: str) -> str:
    """Return e.g. "3.1 steps/min", in the unit of time that gives a readable number."""
    if not steps_per_second:
        return ""
    for factor, name in ((1, "s"), (MINUTE, "min"), (HOUR, "h")):
        if steps_per_second * factor >= 1 or name == "h":
            return f"{number(float(f'{steps_per_second * factor:.3g}'))} {unit}s/{name}"
    return ""


def badge(state: str, stop_requested: str = "") -> tuple[str, str]:
    """Return (word, colour) of an operation's state."""
    if state == State.RUNNING and stop_requested:
        return STOPPING[stop_requested]
    return BADGES[State(state)]


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def moment(at: datetime | None, mode: str = "ago") -> SafeString:
    """Return a <time> that the page keeps true by itself.

    `mode`: "ago" (3 min ago), "until" (in 23 s), "since" (3 min).
    """
    if at is None:
        return SafeString("—")
    return format_html(
        '<time datetime="{}" data-clock="{}" title="{}">{}</time>',
        at.isoformat(),
        mode,
        f"{at:%Y-%m-%d %H:%M:%S %Z}",
        f"{at:%b %d %H:%M}",
    )
