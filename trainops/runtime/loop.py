"""The one loop. Every kind of job is advanced, saved, stopped and failed here."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from trainops.runtime import reproducibility
from trainops.runtime.attempt import Attempt, JobError, job_code
from trainops.runtime.checkpoint.manifest import CheckpointType
from trainops.runtime.checkpoint.snapshot import SafePoint
from trainops.runtime.checkpoint.store import CheckpointPolicy, CheckpointStore
from trainops.runtime.job import Composed, Evaluating, Progress, ResumableJob, Settling, progress_of
from trainops.runtime.supervisor import Directive, Supervisor

__all__ = ["Directive", "Failed", "Outcome", "Stopped", "Succeeded", "Supervisor", "run"]

STOPPING = {
    Directive.CANCEL: CheckpointType.CANCELLATION,
    Directive.PREEMPT: CheckpointType.SHUTDOWN,
}


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
    begun: Callable[[Attempt], None] | None = None,
) -> Outcome:
    """Advance a job from its newest healthy checkpoint until it ends, fails or is told to stop.

    An error in the job's own code is an outcome. An error of the machinery (disk, database, lost
    lease) is raised: it ends this attempt, not the operation. `safe_point_share` is the part of
    the time that may go into keeping a frozen state at hand for a failure checkpoint. `begun` is
    given what can salvage that state from another thread.
    """
    safe_point = SafePoint(clock=clock, share=safe_point_share)
    attempt = Attempt(store, policy, supervisor, safe_point)
    if begun is not None:
        begun(attempt)
    try:
        job = _made(make_job, seed)
        attempt.restore(job)
        with job_code():
            progress = progress_of(job, {})
        attempt.moved(progress)
        directive = supervisor.report(progress)

        while not progress.is_over and directive is Directive.PROCEED:
            progress = _advanced(job)
            attempt.moved(progress)
            directive = supervisor.report(progress)
            if progress.is_over or directive is not Directive.PROCEED:
                break
            attempt.keep_up(job, progress)

        if directive is Directive.PREEMPT and isinstance(job, Settling):
            progress = _settled(job, job, progress, attempt, clock)
        if not progress.is_over:
            attempt.save(job, STOPPING[directive])
            return Stopped(directive)
        attempt.save(job, CheckpointType.FINAL)
        with job_code():
            return Succeeded(job.result())
    except JobError as error:
        attempt.save_what_was_good()
        return Failed(error.__cause__ or error)
    finally:
        reproducibility.include(dict)
        attempt.settle()  # nothing is in flight any more, unless an error cut the loop short


def _made(make_job: Callable[[], ResumableJob], seed: int) -> ResumableJob:
    with job_code():
        reproducibility.seed_all(seed)
        job = make_job()
        reproducibility.include(job.objects if isinstance(job, Composed) else dict)
    if isinstance(job, Evaluating):
        job.in_parts = True
    return job


def _advanced(job: ResumableJob) -> Progress:
    try:  # what job_code() does, without its cost at every step
        return progress_of(job, job.advance())
    except Exception as error:
        raise JobError from error


def _settled(
    job: ResumableJob,
    settling: Settling,
    progress: Progress,
    attempt: Attempt,
    clock: Callable[[], float],
) -> Progress:
    """Go on to where nothing is under way, if that is reached in time; the steps are the same."""
    until = clock() + settling.patience_seconds
    while not progress.is_over and not settling.is_settled and clock() < until:
        progress = _advanced(job)
        attempt.moved(progress)
        if attempt.supervisor.report(progress) is Directive.CANCEL:
            break
    return progress
