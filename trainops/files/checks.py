"""The checks of a verification: what was compared, the result, and its severity."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from trainops.files.errors import FormatError


class Level(StrEnum):
    """Severity of a finding. A warning does not prevent the use of the file."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Check:
    """One line. `detail` says what was compared, and what was found or could not be compared."""

    name: str
    level: Level
    detail: str

    @property
    def passed(self) -> bool:
        return self.level is not Level.FAILED


@dataclass(frozen=True, slots=True)
class Found:
    """The result of one step of a verification that did not fail."""

    detail: str
    warnings: Sequence[str] = ()


Step: TypeAlias = tuple[str, Callable[[], "str | Found"]]


def taken(steps: Iterable[Step]) -> tuple[Check, ...]:
    """Take the steps in their order; after one that raises a FormatError there are no more."""
    checks = []
    for name, take in steps:
        try:
            found = take()
        except FormatError as error:
            checks.append(Check(name, Level.FAILED, str(error)))
            break
        checks.append(_line(name, Found(found) if isinstance(found, str) else found))
    return tuple(checks)


def worst(checks: Iterable[Check]) -> Level:
    """Return the most severe level; OK where there is no check."""
    levels = {check.level for check in checks}
    return next((each for each in (Level.FAILED, Level.WARNING) if each in levels), Level.OK)


def _line(name: str, found: Found) -> Check:
    if found.warnings:
        return Check(name, Level.WARNING, "; ".join([*found.warnings, found.detail]))
    return Check(name, Level.OK, found.detail)
