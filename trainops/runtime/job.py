"""What a resumable job is. Everything trainops runs is one."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar, runtime_checkable

from trainops.media.items import MediaItem
from trainops.runtime.throughput import Throughput

Metrics: TypeAlias = Mapping[str, float]
StateDict: TypeAlias = dict[str, Any]
J = TypeVar("J")


class ResumableJob(Protocol):
    """Work that advances in whole steps and can be frozen between any two of them.

    The promise: load_state_dict(state_dict()) into a newly made job, and every later step is
    bit for bit what it would have been.
    """

    unit: ClassVar[str]  # what one step is called on screen: "step", "bar", "client epoch"

    @property
    def step(self) -> int:
        """Steps completed so far."""

    @property
    def total_steps(self) -> int:
        """Steps there are; may shrink while the job runs (early stopping)."""

    @property
    def place(self) -> str:
        """Where the job is, for people: "3 of 20 epochs"."""

    def advance(self) -> Metrics:
        """Go to the next safe point.

        Returns the points to record at this step, empty on most: a function of the step alone,
        so that the curve is the same however often the run was stopped.
        """

    def state_dict(self) -> StateDict:
        """Return the whole state as parts by name.

        Part "state" is small: plain JSON values. Its "metric", where it has one, is what
        checkpoints are compared by. Every other part may hold tensors, dicts, lists, tuples and
        plain values, and may alias live tensors: copy it to keep it.
        """

    def load_state_dict(self, state: StateDict) -> None:
        """Take over a state. Validates all of it before it changes anything.

        Raises IncompatibleState.
        """

    def result(self) -> Mapping[str, object]:
        """Return the JSON-safe outcome; asked for after the last step."""


@runtime_checkable
class Paced(Protocol):
    """A job that counts its checkpoints in something larger than a step, as training in epochs."""

    @property
    def checkpoint_steps(self) -> int:
        """A checkpoint is due after this many steps, or sooner if the policy says so."""


@runtime_checkable
class Eventful(Protocol):
    """A job in which checkpoints come due by what happens, as after N episodes."""

    def milestones(self) -> int:
        """Return how many checkpoints have come due so far, as a function of the state."""


@runtime_checkable
class Settling(Protocol):
    """A job that is preferably stopped at the end of an activity of several steps: an episode."""

    @property
    def patience_seconds(self) -> float:
        """Maximum seconds that a stop waits for the end of the activity."""

    @property
    def is_settled(self) -> bool:
        """Whether no activity is in progress."""


@runtime_checkable
class Evaluating(Protocol):
    """A job some of whose steps end with an evaluation, which may take long.

    With `in_parts`, advance() returns before an evaluation and after each part of it, at the
    same step and with no points to record. All these are one safe point: state_dict() returns the
    state from before the evaluation, which a resume begins anew. So it must come to the same end
    however often it is begun, and change nothing before its last part.
    """

    in_parts: bool

    @property
    def is_evaluating(self) -> bool:
        """Whether the evaluation of the newest step is not finished."""


@runtime_checkable
class Candid(Protocol):
    """A job that knows what of its state could not be put back bit for bit."""

    inexact: Mapping[str, str]  # why, by the name of the part; empty where everything was


@runtime_checkable
class Foreseeing(Protocol):
    """A job that knows which parts no resume is certain to put back bit for bit."""

    @property
    def uncertain(self) -> Mapping[str, str]:
        """Return why, by the name of the part; empty where all parts are certain."""


@runtime_checkable
class SameWhenPlain(Protocol):
    """A job that knows whether its fast and its plain implementation have equal results."""

    @property
    def is_same_when_plain(self) -> bool:
        """Whether they are equal to the last bit; a job without an answer may have others."""


@runtime_checkable
class Noting(Protocol):
    """A job that has something to say of parts that were restored."""

    @property
    def notes(self) -> Mapping[str, str]:
        """What a receipt says, by the name of the part."""


@runtime_checkable
class WarmStarting(Protocol):
    """A job that can start with the weights of another run."""

    @property
    def weights(self) -> Mapping[str, str]:
        """Return the parts of the state that are state dicts of models, with those they take."""


@runtime_checkable
class Composed(Protocol):
    """A job made of a recipe's objects, which may keep random generators of their own."""

    def objects(self) -> Mapping[str, object]:
        """Return them by the names that people know them by."""


@runtime_checkable
class Measured(Protocol):
    """A job whose speed is recorded, in points whose names begin with `system/`."""

    @property
    def throughput(self) -> Throughput:
        """Return what this process has taken so far. Asked for about once a second."""


@runtime_checkable
class Closing(Protocol):
    """A job with processes or descriptors that must be closed."""

    def close(self) -> None:
        """Close them. Called once, after the job has ended, failed or was stopped."""


def close(job: object) -> None:
    """Close a job, if it is a `Closing` one."""
    if isinstance(job, Closing):
        job.close()


@contextmanager
def closed_after(job: J) -> Iterator[J]:
    """Close the job at the end of the block.

    For jobs that are made to load a state; the loop closes those that it drives.
    """
    try:
        yield job
    finally:
        close(job)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is, and what it recorded at this step: points, and what its recipe logged."""

    step: int
    total_steps: int
    place: str
    metrics: Metrics
    is_evaluating: bool = False  # the newest step's evaluation is not finished
    media: tuple[MediaItem, ...] = ()

    @property
    def is_over(self) -> bool:
        return self.step >= self.total_steps and not self.is_evaluating


def is_evaluating(job: ResumableJob) -> bool:
    """Whether a job is within an evaluation; asked at every step, so quickly."""
    return getattr(job, "is_evaluating", False)


def progress_of(job: ResumableJob, metrics: Metrics) -> Progress:
    return Progress(job.step, job.total_steps, job.place, metrics, is_evaluating(job))
