"""Numbers and sizes as text. Standard library only."""

import math
from typing import Any

UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def size(num_bytes: float | None) -> str:
    """Return e.g. "412 MB": powers of 1000, three digits."""
    if num_bytes is None:
        return "—"
    power = 0
    while num_bytes >= 999.5 and power < len(UNITS) - 1:
        num_bytes /= 1000
        power += 1
    return f"{num_bytes:.3g} {UNITS[power]}"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def number(value: Any) -> str:
    """Return a value with four significant digits; from 1,000 on, whole and with separators."""
    if value is None or value == "":
        return "—"
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 999.95 else f"{value:.4g}"
