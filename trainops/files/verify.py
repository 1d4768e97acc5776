"""Whether a checkpoint can be trusted: a table of checks, for our own and for other tools'."""

from dataclasses import dataclass
from pathlib import Path

from trainops.files import own
from trainops.files.checks import Check, Severity, taken, worst
from trainops.files.digests import beside
from trainops.files.errors import FaultyExport, FormatError
from trainops.files.foreign import opened
from trainops.files.known import directory_format_of
from trainops.files.reading import FileReading
from trainops.files.writing import write


@dataclass(frozen=True, slots=True)
class VerificationReport:
    """What was looked at, in this order. After a check that failed there are no more."""

    path: Path
    checks: tuple[Check, ...]

    @property
    def level(self) -> Severity:
        return worst(self.checks)

    @property
    def passed(self) -> bool:
        return self.level is not Severity.FAILED


def verify(path: Path) -> VerificationReport:
    """Return the checks of a checkpoint's directory, or of a file of a known format.

    Raises OSError where the disk does not answer, or nothing is there.
    """
    if found := directory_format_of(path):
        return VerificationReport(path, taken(found.steps(path)))
    if own.is_own(path):
        return VerificationReport(path, taken(own.OwnReading(path).steps))
    try:
        with opened(path) as content:
            return VerificationReport(path, taken(FileReading(path, content).steps))
    except FormatError as error:
        return VerificationReport(path, (Check("file", Severity.FAILED, str(error)),))


def write_verified(file: object, path: Path) -> None:
    """Write the file for its tool and check what was written; only whole and sound ones stay.

    Raises FaultyExport where it would be refused on its way in, OSError.
    """
    write(file, path)
    checks = verify(path).checks
    failed = [f"{each.name}: {each.detail}" for each in checks if each.level is Severity.FAILED]
    if failed:
        beside(path).unlink(missing_ok=True)
        path.unlink()
        raise FaultyExport(f"The file that was written fails its own checks; {failed[0]}")
