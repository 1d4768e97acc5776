"""The checks of a verification: what was compared, the result, and its severity."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias, TypedDict

from trainops.files.errors import FormatError


class Severity(StrEnum):
    """Severity of a finding. A warning does not prevent the use of the file."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Check:
    """One line. `detail` says what was compared, and what was found or could not be compared."""

    name: str
    level: Severity
    detail: str

    def to_json(self) -> "CheckJson":
        return {"name": self.name, "level": self.level, "detail": self.detail}

    @property
    def passed(self) -> bool:
        return self.level is not Severity.FAILED


class CheckJson(TypedDict):
    """The fields of a Check."""

    name: str
    level: str
    detail: str


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one step of a verification that did not fail."""

    detail: str
    warnings: Sequence[str] = ()


Step: TypeAlias = tuple[str, Callable[[], "str | CheckResult"]]


def taken(steps: Iterable[Step]) -> tuple[Check, ...]:
    """Take the steps in their order; after one that raises a FormatError there are no more."""
    checks = []
    for name, take in steps:
        try:
            found = take()
        except FormatError as error:
            checks.append(Check(name, Severity.FAILED, str(error)))
            break
        checks.append(_line(name, CheckResult(found) if isinstance(found, str) else found))
    return tuple(checks)


def worst(checks: Iterable[Check]) -> Severity:
    """Return the most severe level; OK where there is no check."""
    levels = {check.level for check in checks}
    return next(
        (each for each in (Severity.FAILED, Severity.WARNING) if each in levels), Severity.OK
    )


def _line(name: str, found: CheckResult) -> Check:
    if found.warnings:
        return Check(name, Severity.WARNING, "; ".join([*found.warnings, found.detail]))
    return Check(name, Severity.OK, found.detail)
