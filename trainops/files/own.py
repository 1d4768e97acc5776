"""trainops' own checkpoints: directories with a manifest, looked at as other tools' files are."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from trainops.files.checks import CheckResult, Step
from trainops.files.errors import DamagedFile, InvalidFields
from trainops.files.fields import Fields
from trainops.files.finite import leaves, not_finite
from trainops.files.foreign import outline_in
from trainops.files.known import checks_for
from trainops.files.loading import Surroundings, check_loading
from trainops.plain import JsonObject
from trainops.runtime.checkpoint.manifest import (
    MANIFEST,
    STATE,
    Candidate,
    Checkpoint,
    open_verified,
    read_manifest,
    verify,
    with_state,
)
from trainops.runtime.checkpoint.store import CheckpointStore
from trainops.runtime.checkpoint.stream import Stream
from trainops.runtime.errors import CheckpointCorrupted
from trainops.runtime.job import StateDict

if TYPE_CHECKING:
    from trainops.files.description import StateChecks

UNREADABLE = (AttributeError, IndexError, KeyError, TypeError, ValueError)


def is_own(path: Path) -> bool:
    return path.is_dir()


def submission_of(path: Path) -> JsonObject:
    """Return kind and config of the operation whose checkpoint this directory is.

    Empty where it is none of ours, or of a version that kept no config.
    """
    try:
        identity = read_manifest(path).identity
    except CheckpointCorrupted:
        return {}
    return {name: identity[name] for name in ("kind", "config")} if "config" in identity else {}


class OwnReading:
    """One of our checkpoints on its way in; its steps are to be taken in their order."""

    def __init__(self, path: Path, around: Surroundings | None = None) -> None:
        self.path = path
        self.around = around or Surroundings()
        self.checkpoint: Checkpoint
        self.state: StateDict
        self._checks: StateChecks | None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        return (
            ("manifest", self.read_manifest),
            ("digests", self.compare_digests),
            ("content", self.load_parts),
            ("fields", self.check_fields),
            ("finite numbers", self.check_numbers),
            ("agreement", self.check_agreement),
            ("load", self.check_loading),
        )

    def read_manifest(self) -> str:
        with _raised_as_damage():
            self.checkpoint = read_manifest(self.path)
        return f"{self.checkpoint.type} checkpoint of step {self.checkpoint.step}"

    def compare_digests(self) -> str:
        with _raised_as_damage():
            self.checkpoint = verify(self.path)
        files, size = self.checkpoint.artifacts, self.checkpoint.size_bytes
        return f"{len(files)} files, {size:,} bytes, as the manifest says"

    def load_parts(self) -> str:
        self.state = load_parts(self.path)
        return ", ".join(self.state)

    def check_fields(self) -> str:
        fields = Fields(self.state)
        state = fields.within("state")
        self._checks = checks_for(self.checkpoint.identity, state.items())
        if self._checks is not None:
            self._checks.check_fields(fields, state)
        fields.finish()
        return f"a state of {self._checks.title if self._checks else 'an operation'}"

    def check_numbers(self) -> str:
        parts = {name: part for name, part in self.state.items() if name != "state"}
        numbers = parts if self._checks is None else self._checks.numbers(parts)
        if wrong := not_finite(numbers):
            raise InvalidFields(wrong)
        return "no NaN and no infinity in any tensor outside of streams"

    def check_agreement(self) -> str:
        if self._checks is None:
            return "this kind is only compared with a job; see load"
        try:
            wrong = self._checks.disagreements(self.checkpoint.step, self.state)
        except UNREADABLE as error:
            wrong = {"state": f"cannot be read: {error!r}"}
        if wrong:
            raise InvalidFields(wrong)
        return f"compared with the manifest's step: {self._checks.compared}; they agree"

    def check_loading(self) -> CheckResult:
        return check_loading(self.checkpoint, self.state, self.around)


def load_parts(path: Path) -> StateDict:
    """Return the verified parts of a checkpoint by name. Raises FormatErrors and OSErrors.

    The checkpoint may come from anywhere: nothing is loaded before its outlines are within limits.
    """
    deque(outlines(path), maxlen=0)
    with _raised_as_damage():
        store = CheckpointStore(path.parent, identity={})
        parts = store.load(Candidate(path, read_manifest(path).digest))
        deque(leaves(parts), maxlen=0)  # the walk must reach their end
        return parts


def in_columns(parts: StateDict) -> StateDict:
    """Return the parts with each stream as its columns, by name."""
    return {
        name: _columns(part) if isinstance(part, Stream) else part for name, part in parts.items()
    }


def _columns(stream: Stream) -> dict[str, object]:
    return {
        "first_row": stream.first_row,
        **{name: stream.column(name) for name in stream.columns},
    }


def outlines(path: Path) -> Iterator[tuple[str, object]]:
    """Yield each part's name and outline, every byte verified. Raises FormatErrors, OSErrors."""
    with _raised_as_damage():
        checkpoint = with_state(read_manifest(path))
        yield "state", dict(checkpoint.state)
        for artifact in checkpoint.artifacts:
            if artifact.name != STATE:
                with open_verified(path, artifact) as file:
                    yield artifact.name.removesuffix(".pt"), outline_in(file).root


@contextmanager
def _raised_as_damage() -> Iterator[None]:
    try:
        yield
    except CheckpointCorrupted as error:
        hint = f"; there is no {MANIFEST}" if error.missing == [MANIFEST] else ""
        raise DamagedFile(f"{error}{hint}") from error
    except RecursionError as error:
        raise DamagedFile("the checkpoint's values are nested too deep") from error
