"""Whether a checkpoint can be trusted: a table of checks, for our own and for other tools'."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainops.formats import own
from trainops.formats.errors import FormatError
from trainops.formats.foreign import opened
from trainops.formats.reading import Reading


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    passed: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Report:
    """What was looked at, in this order. After a check that failed there are no more."""

    path: Path
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)


def verify(path: Path) -> Report:
    """Return the checks of a checkpoint's directory, or of a file of a known format.

    Raises OSError where the disk does not answer, or nothing is there.
    """
    if own.is_own(path):
        return Report(path, _taken(own.OwnReading(path).steps))
    try:
        with opened(path) as content:
            return Report(path, _taken(Reading(path, content).steps))
    except FormatError as error:
        return Report(path, (Check("file", False, str(error)),))


def _taken(steps: Sequence[tuple[str, Callable[[], str]]]) -> tuple[Check, ...]:
    checks = []
    for name, take in steps:
        try:
            checks.append(Check(name, True, take()))
        except FormatError as error:
            checks.append(Check(name, False, str(error)))
            break
    return tuple(checks)
