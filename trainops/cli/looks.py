"""How values look to a person: short, and harmless on a terminal."""

import math
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from trainops.cli.tables import Text
from trainops.client.responses import Operation
from trainops.plain import Json

DASH = "-"
STATE_STYLES = {
    "PENDING": "yellow",
    "RUNNING": "blue",
    "RESUMING": "cyan",
    "COMPLETED": "green",
    "FAILED": "red",
    "CANCELLED": "bright_black",
    "AVAILABLE": "green",
    "BUSY": "blue",
    "STORAGE_AWAY": "yellow",
    "DRAINING": "yellow",
    "TEMPORARILY_UNAVAILABLE": "yellow",
    "GONE": "bright_black",
    "healthy": "green",
    "corrupted": "red",
}
# Whatever a name or a log holds, it moves no cursor, rings no bell and sets no window title.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-Z\\-_])")
FINISHED = frozenset({"COMPLETED", "FAILED", "CANCELLED"})


def plain(value: object) -> str:
    """Return text without escape sequences and control characters; lines and tabs stay."""
    text = _ESCAPES.sub("", str(value).replace("\r\n", "\n").replace("\r", "\n"))
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def cell(value: object) -> Text:
    """Return a table's cell: one line, cut where it must be, no markup read into it."""
    return Text(DASH if value in (None, "") else " ".join(plain(value).split()))


def words(value: object) -> Text:
    """Return a table's cell that may take several lines."""
    return Text(cell(value).plain, wraps=True)


def state(value: str) -> Text:
    return Text(plain(value), style=STATE_STYLES.get(value, ""))


def operations(number: int) -> str:
    return f"{number} operation" if number == 1 else f"{number} operations"


def size(num_bytes: float | None) -> str:
    """Return e.g. "1.6 GB"; decimal units, as disks are sold."""
    if num_bytes is None:
        return DASH
    for unit in ("B", "kB", "MB", "GB"):
        if abs(num_bytes) < 1000:
            return f"{num_bytes:.0f} B" if unit == "B" else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.1f} TB"


def duration(seconds: float | None) -> str:
    """Return e.g. "42 s", "3 min 20 s", "2 h 5 min", "4 d 3 h": the two largest units."""
    if seconds is None:
        return DASH
    seconds = max(0, round(seconds))
    days, hours, minutes = seconds // 86400, seconds // 3600 % 24, seconds // 60 % 60
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds % 60, "s")]
    first = next((index for index, (count, _) in enumerate(parts) if count), 3)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count) or "0 s"


def moment(value: str | None) -> datetime | None:
    """Return the moment that the API wrote as ISO 8601, if it is one."""
    if not value:
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def at(value: str | None) -> str:
    """Return a moment to the second, in UTC, e.g. "2026-11-23 10:46:39 UTC"."""
    found = moment(value)
    return DASH if found is None else f"{found.astimezone(UTC):%Y-%m-%d %H:%M:%S UTC}"


def age(value: str | None, *, clock: Callable[[], float] = time.time) -> int | None:
    """Return how many whole seconds ago the moment was; 0 where clocks differ."""
    then = moment(value)
    return None if then is None else max(0, int(clock() - then.timestamp()))


def ago(value: str | None, *, clock: Callable[[], float] = time.time) -> str:
    """Return e.g. "3 min ago"."""
    seconds = age(value, clock=clock)
    if seconds is None:
        return DASH
    return f"{' '.join(duration(seconds).split()[:2])} ago" if seconds else "now"


def when(value: str | None) -> str:
    """Return e.g. "3 min ago (2026-11-23 10:46:39 UTC)"."""
    return DASH if moment(value) is None else f"{ago(value)} ({at(value)})"


def number(value: object) -> str:
    """Return a metric as people read it: four significant digits, integers whole."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return plain(value)
    if math.isfinite(value) and value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.4g}"


def metrics(values: Mapping[str, object] | None, *, at_most: int = 4) -> str:
    """Return the newest values that people look at first: losses, then accuracies, then others."""
    names = sorted(values or {}, key=lambda name: (_rank(name), name))
    shown = [f"{plain(name)} {number((values or {})[name])}" for name in names if name != "epoch"]
    return " · ".join(shown[:at_most])


def objective(operation: Operation) -> str:
    """Return e.g. "val_loss 0.25": the latest value of the monitored metric, else of another."""
    return metrics(_monitored(operation) or operation.get("metrics"), at_most=1)


def other_metrics(operation: Operation, *, at_most: int) -> str:
    """Return the latest values of those that `objective` does not show."""
    name = objective(operation).partition(" ")[0]
    found = operation.get("metrics") or {}
    return metrics({each: found[each] for each in found if plain(each) != name}, at_most=at_most)


def _monitored(operation: Operation) -> dict[str, Json]:
    name, found = operation.get("monitor"), operation.get("metrics") or {}
    return {name: found[name]} if name in found else {}


def _rank(name: str) -> int:
    order = ("val_loss", "train_loss", "val_accuracy", "train_accuracy")
    return order.index(name) if name in order else len(order)


def progress(operation: Operation) -> str:
    """Return e.g. "45 % · epoch 3 of 20"."""
    percent, place = operation.get("percent"), operation.get("place")
    if operation.get("status") == "PENDING" or percent is None:
        return DASH
    return f"{percent:.0f} %" + (f" · {plain(place)}" if place else "")
