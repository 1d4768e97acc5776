"""The one loop. Every kind of job is advanced, saved, stopped and failed here."""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TypeAlias

from trainops.media.recorder import RECORDER
from trainops.runtime import reproducibility
from trainops.runtime.checkpoint.manifest import CheckpointType
from trainops.runtime.checkpoint.snapshot import SafePoint
from trainops.runtime.checkpoint.store import CheckpointPolicy, CheckpointStore
from trainops.runtime.checkpointer import Checkpointer, JobError, job_code
from trainops.runtime.errors import Machinery
from trainops.runtime.job import (
    Composed,
    Evaluating,
    Progress,
    ResumableJob,
    Settling,
    close,
    progress_of,
)
from trainops.runtime.ranks import NoRanks, Ranks
from trainops.runtime.supervisor import Directive, Supervisor

__all__ = ["Directive", "Failed", "Outcome", "Stopped", "Succeeded", "Supervisor", "run"]

STOPPING = {
    Directive.CANCEL: CheckpointType.CANCELLATION,
    Directive.PREEMPT: CheckpointType.SHUTDOWN,
}


@dataclass(frozen=True, slots=True)
class Succeeded:
    result: Mapping[str, object]


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
    requires_exact: bool = False,
    begun: Callable[[Checkpointer], None] | None = None,
    ranks: Ranks | None = None,
) -> Outcome:
    """Advance a job from its newest healthy checkpoint until it ends, fails or is asked to stop.

    An error in the job's own code is an outcome. An error of the platform (disk, database, lost
    lease) is raised: it ends this attempt, not the operation. `safe_point_share` is the part of
    the time that may go into keeping a frozen state at hand for a failure checkpoint. With
    `requires_exact` a resume that is not exact fails with NotExact before its first step. `begun`
    is given what can salvage that state from another thread. `ranks` are the other processes that
    compute the job: what is decided here holds for all of them.
    """
    safe_point = SafePoint(clock=clock, share=safe_point_share)
    others = NoRanks() if ranks is None else ranks
    attempt = Checkpointer(store, policy, supervisor, safe_point, others)
    if begun is not None:
        begun(attempt)
    job: ResumableJob | None = None
    try:
        job = _made(make_job, seed, others)
        attempt.restore(job, requires_exact=requires_exact)
        with job_code():
            progress = progress_of(job, {})
        RECORDER.open(attempt.logged)
        attempt.moved(progress, RECORDER.numbers)
        directive = supervisor.report(progress)

        while not progress.is_over and directive is Directive.PROCEED:
            progress = _advanced(job, others, progress)
            attempt.moved(progress, RECORDER.numbers)
            directive = supervisor.report(progress)
            if progress.is_over or directive is not Directive.PROCEED:
                break
            attempt.keep_up(job, progress)

        if directive is Directive.PREEMPT and isinstance(job, Settling):
            progress = _settled(job, job, progress, attempt, clock, others)
        if not progress.is_over:
            attempt.save(job, STOPPING[directive])
            return Stopped(directive)
        attempt.save(job, CheckpointType.FINAL)
        with job_code():
            return Succeeded(job.result())
    except JobError as error:
        first = others.origin(error.__cause__ or error)
        attempt.save_what_was_good()
        if isinstance(first, Machinery):
            raise first from error
        return Failed(first)
    finally:
        RECORDER.close()
        reproducibility.include(dict)
        _end(attempt, job)


def _made(make_job: Callable[[], ResumableJob], seed: int, ranks: Ranks) -> ResumableJob:
    with job_code():
        ranks.make()
        reproducibility.seed_all(seed)
        RECORDER.is_preparing = True
        job = make_job()
        RECORDER.is_preparing = False
        ranks.wait()
        reproducibility.include(job.objects if isinstance(job, Composed) else dict)
    if isinstance(job, Evaluating):
        job.in_parts = True
    return job


def _end(attempt: Checkpointer, job: object) -> None:
    with ExitStack() as at_last:
        at_last.callback(close, job)
        attempt.settle()  # nothing is in flight any more, unless an error cut the loop short


def _advanced(job: ResumableJob, ranks: Ranks, before: Progress) -> Progress:
    try:  # what job_code() does, without its cost at every step
        ranks.advance()
        progress = progress_of(job, job.advance())
    except Exception as error:
        raise JobError from error
    if not RECORDER.logged and not RECORDER.numbers:
        return progress
    with job_code():
        return _with_logged(progress, before)


def _with_logged(progress: Progress, before: Progress) -> Progress:
    """Add what was logged, once no resume logs it again: an evaluation is begun anew as a whole.

    Numbers wait for its end, as the other points of its step; a checkpoint before has them.
    """
    if before.is_evaluating and progress.is_evaluating:
        return progress
    is_early = progress.is_evaluating
    items = (replace(each, step=progress.step, is_early=is_early) for each in RECORDER.take())
    numbers = {} if is_early else RECORDER.take_numbers(progress.metrics)
    return replace(progress, metrics={**progress.metrics, **numbers}, media=tuple(items))


def _settled(
    job: ResumableJob,
    settling: Settling,
    progress: Progress,
    attempt: Checkpointer,
    clock: Callable[[], float],
    ranks: Ranks,
) -> Progress:
    """Continue until nothing is under way, if that is reached in time; the steps are equal."""
    until = clock() + settling.patience_seconds
    while not progress.is_over and not settling.is_settled and clock() < until:
        progress = _advanced(job, ranks, progress)
        attempt.moved(progress, RECORDER.numbers)
        if attempt.supervisor.report(progress) is Directive.CANCEL:
            break
    return progress
