"""Reading a file of another tool: six steps, each of which can say no."""

from pathlib import Path
from typing import Any, BinaryIO, TypeVar, assert_never

from trainops.formats import digests, federated, foreign, step_directory
from trainops.formats.checks import Found, Step
from trainops.formats.errors import ForbiddenContent, InvalidFields, UnknownFormat
from trainops.formats.federated import FederatedFile
from trainops.formats.finite import not_finite
from trainops.formats.known import ForeignFile, Format, recognise
from trainops.formats.outline import Outline, entries_of
from trainops.formats.rl import RlFile
from trainops.formats.rl_world import World, check_world
from trainops.formats.training import TrainingFile

F = TypeVar("F", TrainingFile, FederatedFile, RlFile)
WORDS: dict[type[Any], str] = {
    TrainingFile: "training",
    FederatedFile: "federated training",
    RlFile: "reinforcement learning",
}


class Reading:
    """One open file on its way in. The steps are to be taken in their order.

    Each returns a sentence about what it found, and raises FormatErrors, or OSError where the disk
    does not answer.
    """

    def __init__(self, path: Path, content: BinaryIO) -> None:
        self.path = path
        self.outline: Outline
        self.format: Format
        self.file: ForeignFile
        self._content = content
        self._tree: Any = None

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

    def read_fields(self) -> Found:
        self._tree = foreign.load(self._content, self.outline)
        self.file = self.format.parse(self._tree)
        file = self.file
        notices = federated.notices(file) if isinstance(file, FederatedFile) else ()
        return Found(_described(file), notices)

    def check_numbers(self) -> str:
        if wrong := not_finite(self._tree):
            raise InvalidFields(wrong)
        return "no NaN and no infinity in any tensor"

    def check_agreement(self) -> Found:
        if wrong := self.format.disagreements(self.file):
            raise InvalidFields(wrong)
        return Found(self.format.compared, self.format.warnings(self.file))


def read(path: Path) -> ForeignFile:
    """Return the file, whichever of the formats it is. Raises FormatErrors and OSErrors."""
    with foreign.opened(path) as content:
        reading = Reading(path, content)
        for _, take in reading.steps:
            take()
    return reading.file


def read_training(path: Path) -> TrainingFile:
    """Return a training file, or what is read as one: a transformer trainer's directory, weights.

    Raises FormatErrors and OSErrors.
    """
    if step_directory.is_one(path):
        return step_directory.read(path)
    return _expect(TrainingFile, read(path))


def read_federated(path: Path) -> FederatedFile:
    """Return a federated file. Raises FormatErrors and OSErrors."""
    return _expect(FederatedFile, read(path))


def read_rl(path: Path, world: World | None = None) -> tuple[RlFile, dict[str, str]]:
    """Return a file of reinforcement learning, and what of its config differs from the world's.

    Raises FormatErrors and OSErrors, in the order of the checks: digest, version, substrate,
    dimensions.
    """
    file = _expect(RlFile, read(path))
    return file, check_world(file, world or World())


def _expect(kind: type[F], file: ForeignFile) -> F:
    if not isinstance(file, kind):
        raise UnknownFormat(f"this is a file of {WORDS[type(file)]}, not of {WORDS[kind]}")
    return file


def _described(file: ForeignFile) -> str:
    match file:
        case TrainingFile(is_weights_only=True):
            return f"{len(file.model)} tensors"
        case TrainingFile():
            legacy = f"; older layout with {', '.join(file.was_legacy)}" if file.was_legacy else ""
            return f"epoch {file.epoch}, step {file.global_step}{legacy}"
        case FederatedFile():
            return f"round {file.round.current} of {file.round.total}, {file.round.status}"
        case RlFile():
            return f"episode {file.episode}, {file.population.total_steps} steps"
    assert_never(file)
