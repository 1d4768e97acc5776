"""Reading a file of another tool: six steps, each of which can say no."""

from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from trainops.files import digests, foreign
from trainops.files.checks import CheckResult, Step
from trainops.files.errors import ForbiddenContent, InvalidFields
from trainops.files.finite import not_finite
from trainops.files.known import recognise
from trainops.files.outline import Outline, entries_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainops.files.description import FileFormat


class FileReading:
    """One open file on its way in. The steps are to be taken in their order.

    Each returns a sentence about what it found, and raises FormatErrors, or OSError where the disk
    does not answer.
    """

    def __init__(self, path: Path, content: BinaryIO) -> None:
        self.path = path
        self.outline: Outline
        self.format: FileFormat
        self.file: object  # of the format's class
        self._content = content
        self._tree: Mapping[str, object] = {}

    @property
    def steps(self) -> tuple[Step, ...]:
        return (
            ("digest", self.compare_digest),
            ("content", self.look_inside),
            ("version", self.check_version),
            ("fields", self.read_fields),
            ("finite numbers", self.check_numbers),
            ("agreement", self.check_agreement),
        )

    def compare_digest(self) -> str:
        return digests.compare(self.path, self._content)

    def look_inside(self) -> str:
        self.outline = foreign.outline_in(self._content)
        return "an undamaged archive of tensors, arrays and plain values"

    def check_version(self) -> str:
        self.format = recognise(self.outline)
        if self.outline.enums and not self.format.has_enums:
            raise ForbiddenContent(", ".join(sorted(self.outline.enums)))
        return self.format.check_version(entries_of(self.outline.root) or {})

    def read_fields(self) -> CheckResult:
        self._tree = foreign.load(self._content, self.outline)
        self.file = self.format.parse(self._tree)
        return CheckResult(self.format.describe(self.file), self.format.notices(self.file))

    def check_numbers(self) -> str:
        if wrong := not_finite(self._tree):
            raise InvalidFields(wrong)
        return "no NaN and no infinity in any tensor"

    def check_agreement(self) -> CheckResult:
        if wrong := self.format.disagreements(self.file):
            raise InvalidFields(wrong)
        return CheckResult(self.format.compared, self.format.warnings(self.file))


def read(path: Path) -> object:
    """Return the file, whichever of the formats it is. Raises FormatErrors and OSErrors."""
    with foreign.opened(path) as content:
        reading = FileReading(path, content)
        for _, take in reading.steps:
            take()
    return reading.file
