"""The one loop. Every kind of job is advanced, saved, stopped and failed here."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Protocol, TypeAlias

from trainops.engines import reproducibility
from trainops.engines.checkpoint import CheckpointPolicy, CheckpointStore
from trainops.engines.errors import (
    AllCheckpointsCorrupted,
    CheckpointCorrupted,
    IncompatibleState,
    SaveFailed,
    UnfreezableState,
)
from trainops.engines.job import Paced, Progress, ResumableJob, StateDict
from trainops.engines.manifest import Candidate, Checkpoint, CheckpointType
from trainops.engines.receipt import Receipt, ReceiptItem, compare_environments
from trainops.engines.snapshot import SafePoint, all_finite

RANDOM = "random"  # the part of every checkpoint that holds the global random streams


class Directive(Enum):
    """What a supervisor answers to a report."""

    PROCEED = auto()
    CANCEL = auto()  # a person asked
    PREEMPT = auto()  # the house needs the worker; run again later


STOPPING = {
    Directive.CANCEL: CheckpointType.CANCELLATION,
    Directive.PREEMPT: CheckpointType.SHUTDOWN,
}


class Supervisor(Protocol):
    """Whom a run answers to. Called between steps, never inside one."""

    def restored(self, receipt: Receipt) -> None:
        """Hear, once, where the run starts and how exact that is."""

    def corrupted(self, candidate: Candidate, error: CheckpointCorrupted) -> None:
        """Hear that a checkpoint is bad; the next older one is tried."""

    def report(self, progress: Progress) -> Directive:
        """Hear how far the job is; answer whether it goes on. Takes microseconds."""

    def checkpointed(self, checkpoint: Checkpoint) -> None:
        """Commit the checkpoint, after everything reported before it is durable.

        Raises LeaseLost if this attempt no longer owns the operation.
        """

    def save_failed(self, error: SaveFailed) -> None:
        """Hear that a checkpoint could not be written; the run goes on without it."""


@dataclass(frozen=True, slots=True)
class Succeeded:
    result: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Stopped:
    directive: Directive


@dataclass(frozen=True, slots=True)
class Failed:
    error: BaseException


Outcome: TypeAlias = Succeeded | Stopped | Failed


def run(
    make_job: Callable[[], ResumableJob],
    *,
    seed: int,
    store: CheckpointStore,
    policy: CheckpointPolicy,
    supervisor: Supervisor,
    clock: Callable[[], float] = time.monotonic,
    safe_point_share: float = 0.005,
) -> Outcome:
    """Advance a job from its newest healthy checkpoint until it ends, fails or is told to stop.

    An error in the job's own code is an outcome. An error of the machinery (disk, database, lost
    lease) is raised: it ends this attempt, not the operation. `safe_point_share` is the part of
    the time that may go into keeping a frozen state at hand for a failure checkpoint.
    """
    safe_point = SafePoint(clock=clock, share=safe_point_share)
    attempt = _Attempt(store, policy, supervisor, safe_point)
    try:
        with job_code():
            reproducibility.seed_all(seed)
            job = make_job()
        attempt.restore(job)
        with job_code():
            progress = Progress(job.step, job.total_steps, job.place, {})
        directive = supervisor.report(progress)

        while progress.step < progress.total_steps and directive is Directive.PROCEED:
            try:  # what job_code() does, without its cost at every step
                metrics = job.advance()
                progress = Progress(job.step, job.total_steps, job.place, metrics)
            except Exception as error:
                raise JobError from error
            directive = supervisor.report(progress)
            if progress.step >= progress.total_steps or directive is not Directive.PROCEED:
                break
            if policy.is_due(progress.step):
                attempt.save(job, CheckpointType.PERIODIC)
            elif safe_point.is_affordable():
                attempt.freeze(job)

        if progress.step < progress.total_steps:
            attempt.save(job, STOPPING[directive])
            return Stopped(directive)
        attempt.save(job, CheckpointType.FINAL)
        with job_code():
            return Succeeded(job.result())
    except JobError as error:
        attempt.save_what_was_good()
        return Failed(error.__cause__ or error)


class JobError(Exception):
    """Something in the job's own code went wrong; the cause says what."""


@contextmanager
def job_code() -> Iterator[None]:
    """Mark code whose errors are the job's."""
    try:
        yield
    except Exception as error:
        raise JobError from error


@dataclass(slots=True)
class _Attempt:
    """How one run restores and saves its job."""

    store: CheckpointStore
    policy: CheckpointPolicy
    supervisor: Supervisor
    safe_point: SafePoint
    saved_step: int | None = field(default=None, init=False)  # of the newest committed checkpoint

    def restore(self, job: ResumableJob) -> None:
        """Load the newest healthy candidate and say how exact that is. Raises JobError."""
        receipt = Receipt(step=job.step)
        if found := self._newest_healthy():
            checkpoint, state = found
            with job_code():
                receipt = _take_over(job, checkpoint, state)
            self.saved_step = checkpoint.step
        if isinstance(job, Paced):
            self.policy.at_least_every(job.checkpoint_steps)
        self.policy.saved(job.step)
        self.supervisor.restored(receipt)

    def freeze(self, job: ResumableJob) -> StateDict:
        """Copy the job's whole state into the safe point. Raises JobError."""
        with job_code():
            return self.safe_point.take(job.step, lambda: _capture(job))

    def save(self, job: ResumableJob, kind: CheckpointType) -> None:
        """Write and commit the job as it stands; only a final one must succeed."""
        is_known = job.step == self.saved_step and kind is not CheckpointType.FINAL
        if is_known:  # stopped before the first step after a resume: nothing is new
            return
        state = self.freeze(job)
        try:
            self._commit(kind, job.step, state)
        except UnfreezableState as error:  # what the job calls its state cannot be one
            raise JobError from error
        except SaveFailed as error:
            if kind is CheckpointType.FINAL:
                raise
            self.supervisor.save_failed(error)
        self.policy.saved(job.step)

    def save_what_was_good(self) -> None:
        """After a failure: commit the safe point, if it is newer than the last checkpoint.

        One with NaN in it is not saved: nobody could go on from there.
        """
        step = self.safe_point.step
        if step is None or step <= (self.saved_step or 0) or not all_finite(self.safe_point.state):
            return
        try:
            self._commit(CheckpointType.FAILURE, step, self.safe_point.state)
        except UnfreezableState:
            return  # then this is the failure that is being reported
        except SaveFailed as error:
            self.supervisor.save_failed(error)

    def _commit(self, kind: CheckpointType, step: int, state: StateDict) -> None:
        self.supervisor.checkpointed(self.store.write(kind, step=step, state=state))
        self.saved_step = step

    def _newest_healthy(self) -> tuple[Checkpoint, StateDict] | None:
        errors = []
        for candidate in self.store.candidates:
            try:
                return self.store.restore(candidate)
            except CheckpointCorrupted as error:
                errors.append(error)
                self.supervisor.corrupted(candidate, error)
        if errors:
            raise AllCheckpointsCorrupted(errors)
        return None


def _capture(job: ResumableJob) -> StateDict:
    state = job.state_dict()
    if RANDOM in state:
        raise ValueError(f"part {RANDOM!r} of the state belongs to the loop")
    return state | {RANDOM: reproducibility.state_dict()}


def _take_over(job: ResumableJob, checkpoint: Checkpoint, state: StateDict) -> Receipt:
    """Load the job, then the random streams: loading may draw numbers."""
    streams = state.pop(RANDOM, {})
    parts = [part for part in state if part != "state"]
    job.load_state_dict(state)
    if job.step != checkpoint.step:
        raise IncompatibleState(
            f"the job is at step {job.step}, its checkpoint at {checkpoint.step}"
        )
    restored = reproducibility.load_state_dict(streams)
    return Receipt(
        step=checkpoint.step,
        checkpoint=checkpoint.path.name,
        items=(
            *(ReceiptItem(part) for part in parts),
            ReceiptItem("data position", note=f"{job.unit} {job.step}, {job.place}"),
            *(_stream(name, name in restored) for name in streams),
            *compare_environments(checkpoint.environment, reproducibility.environment()),
        ),
    )


def _stream(name: str, is_restored: bool) -> ReceiptItem:
    label = {"torch": "torch cpu"}.get(name, name)
    note = "" if is_restored else "the number of devices differs"
    return ReceiptItem(f"random: {label}", is_restored, is_restored, note)
