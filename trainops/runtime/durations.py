"""Lengths of operations as a number and a unit: `10ep`, `500ba`, `2h`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SECONDS = {"s": 1, "m": 60, "h": 3600}  # of each unit of time
NAMES = {"ep": "epochs", "ba": "batches", "s": "seconds", "m": "minutes", "h": "hours"}
EXAMPLES = {"ep": "10ep", "ba": "500ba", "s": "90s", "m": "30m", "h": "2h"}
PATTERN = re.compile(r"([1-9][0-9]{0,8})([a-z]+)")


@dataclass(frozen=True, slots=True)
class Duration:
    number: int
    unit: str  # of NAMES

    @property
    def seconds(self) -> float | None:
        """The time in seconds; None of epochs and batches."""
        return self.number * SECONDS[self.unit] if self.unit in SECONDS else None


def parse_duration(text: str, units: Sequence[str] = tuple(NAMES)) -> Duration:
    """Return the duration. Raises ValueError, which names what is allowed."""
    found = PATTERN.fullmatch(text)
    if found is None or found[2] not in units:
        allowed = ", ".join(f"{EXAMPLES[unit]} ({NAMES[unit]})" for unit in units)
        raise ValueError(f"allowed: a whole number and a unit, such as {allowed}")
    return Duration(int(found[1]), found[2])


def max_seconds(limits: Mapping[str, object]) -> float | None:
    """Return the time that the section `limits` of a config allows; the shorter of two."""
    text, seconds = limits.get("max_duration"), limits.get("max_duration_seconds")
    of_text = parse_duration(text).seconds if isinstance(text, str) else None
    given = [each for each in (of_text, seconds) if isinstance(each, int | float)]
    return min(given, default=None)
