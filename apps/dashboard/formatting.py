"""How the pages say numbers, moments and states. Pure."""

import math
import re
from datetime import UTC, datetime
from typing import Any

from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.operations.badges import badge as badge
from apps.operations.scheduling.blocking import BlockingReason
from trainops.quantities import number as number
from trainops.quantities import plural as plural
from trainops.quantities import size as size

MINUTE, HOUR, DAY, MONTH = 60, 3600, 86400, 30 * 86400
SECOND = len("2026-11-26 14:07:44")
MOMENT = re.compile(r'(<time datetime="([^"]*)" data-clock="(\w+)"[^>]*>)[^<]*')

# What keeps a waiting operation from being taken, in a few words; what passes by itself has none.
OBSTACLES = {
    BlockingReason.NO_WORKER: "no worker is running",
    BlockingReason.NO_WORKER_FOR_KIND: "no worker serves its kind",
    BlockingReason.NO_WORKER_WITH_LABEL: "no worker has its label",
    BlockingReason.TOO_FEW_WORKERS: "too few workers for its nodes",
    BlockingReason.TOO_FEW_SLOTS: "no worker has enough slots",
    BlockingReason.NO_GPU: "no worker has a GPU",
    BlockingReason.GPU_TOO_SMALL: "no GPU has enough memory",
    BlockingReason.MEMORY_TOO_SMALL: "no machine has enough memory",
    BlockingReason.WORKERS_UNREACHABLE: "no worker responds",
    BlockingReason.WORKERS_DRAINING: "all matching workers are draining",
    BlockingReason.WORKERS_ENDING: "all matching workers end before its first checkpoint",
    BlockingReason.STORAGE_AWAY: "the storage is unavailable",
    BlockingReason.DATASETS_AWAY: "the dataset storage is unavailable",
    BlockingReason.DISK_SHORT: "not enough disk space",
}


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


def moment(at: datetime | None, mode: str = "ago") -> SafeString:
    """Return a <time> that the page keeps true by itself.

    `mode`: "ago" (3 min ago), "until" (in 23 s), "since" (3 min), "at" (14:07:44). The text and the
    title are in the current time zone, which is the reader's; `static/js/clock.js` says the same.
    """
    if at is None:
        return SafeString("—")
    return format_html(
        '<time datetime="{}" data-clock="{}" title="{}">{}</time>',
        at.astimezone(UTC).isoformat(),
        mode,
        exact(at),
        in_words(at, mode, timezone.now()),
    )


def as_of_now(html: SafeString) -> SafeString:
    """Return HTML that was rendered earlier, with what its moments say now."""
    now = timezone.now()

    def said(moment: re.Match[str]) -> str:
        return moment[1] + in_words(datetime.fromisoformat(moment[2]), moment[3], now)

    return SafeString(MOMENT.sub(said, html))


def exact(at: datetime) -> str:
    """Return "2026-11-26 14:07:44 +01:00 · 2026-11-26 13:07:44 UTC": the current time zone, UTC."""
    local, utc = timezone.localtime(at), f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    text = local.isoformat(sep=" ", timespec="seconds")
    return f"{text[:SECOND]} {text[SECOND:]} · {utc}" if local.utcoffset() else utc


def in_words(at: datetime, mode: str, now: datetime) -> str:
    """Return a moment as `moment` shows it. What is long past is a date."""
    seconds = (now - at).total_seconds()
    if mode == "at":
        local = timezone.localtime(at)
        is_today = local.date() == timezone.localtime(now).date()
        return f"{local:%H:%M:%S}" if is_today else f"{local:%Y-%m-%d %H:%M:%S}"
    if mode == "since":
        return duration(round(seconds))
    if mode == "until":
        return f"in {duration(round(-seconds))}" if seconds < 0 else "any moment now"
    if seconds >= MONTH:
        return f"{timezone.localtime(at):%Y-%m-%d}"
    return "just now" if seconds < 1 else f"{_coarse(seconds)} ago"


def _coarse(seconds: float) -> str:
    """One unit is enough for a glance."""
    if seconds < MINUTE:
        return f"{int(seconds)} s"
    if seconds < HOUR:
        return f"{int(seconds // MINUTE)} min"
    return f"{int(seconds // HOUR)} h" if seconds < DAY else f"{int(seconds // DAY)} d"
