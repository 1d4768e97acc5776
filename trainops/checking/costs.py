"""Measure what a step costs in the loop of trainops beside the same calls without it."""

import time
from collections.abc import Callable

from trainops.checking.attempting import factory, ledger_of, prepared
from trainops.checking.messages import Measure, StepTimes
from trainops.runtime import reproducibility
from trainops.runtime.checkpoint.manifest import Candidate, Checkpoint
from trainops.runtime.checkpoint.store import CheckpointPolicy, CheckpointStore
from trainops.runtime.errors import CheckpointCorrupted, SaveFailed
from trainops.runtime.job import Progress, ResumableJob
from trainops.runtime.loop import Directive, Failed, run
from trainops.runtime.receipt import Receipt


class Stopwatch:
    """A supervisor that takes the time between the first step and the last, which it ends."""

    def __init__(self, until: int) -> None:
        self._until, self._began, self._first = until, 0.0, 0
        self.milliseconds = 0.0  # per step

    def restored(self, receipt: Receipt) -> None:
        """Do nothing: every run starts anew."""

    def corrupted(self, candidate: Candidate, error: CheckpointCorrupted) -> None:
        """Do nothing: there are no checkpoints."""

    def report(self, progress: Progress) -> Directive:
        if progress.step and not self._began:  # the first step imports and allocates
            self._began, self._first = time.perf_counter(), progress.step
        if progress.step < self._until or progress.is_evaluating:
            return Directive.PROCEED
        seconds = time.perf_counter() - self._began
        self.milliseconds = 1000 * seconds / max(1, progress.step - self._first)
        return Directive.CANCEL

    def checkpointed(self, checkpoint: Checkpoint) -> None:
        """Do nothing: no attempt resumes from it."""

    def save_failed(self, error: SaveFailed) -> None:
        raise error


class NoCheckpoints(CheckpointPolicy):
    """None is ever due, whatever the job's own pace."""

    def is_due(self, step: int) -> bool:
        return False


def measure(request: Measure) -> StepTimes:
    """Measure the three ways in turns, so that a change of the machine's load meets all of them."""
    config = prepared(request.subject)

    def make() -> ResumableJob:
        return factory(request.subject, config, ledger_of(request.subject))()

    _bare(make, config.seed, request.until)  # what is imported by the first use
    bare, runner, saving = [], [], []
    for number in range(request.repeats):
        bare.append(_bare(make, config.seed, request.until))
        runner.append(_in_runner(make, config.seed, request, None, number))
        saving.append(_in_runner(make, config.seed, request, request.every_steps, number))
    return StepTimes(tuple(bare), tuple(runner), tuple(saving))


def _bare(make: Callable[[], ResumableJob], seed: int, until: int) -> float:
    reproducibility.seed_all(seed)
    job = make()
    job.advance()
    began, first = time.perf_counter(), job.step
    while job.step < until:
        job.advance()
    return 1000 * (time.perf_counter() - began) / max(1, job.step - first)


def _in_runner(
    make: Callable[[], ResumableJob],
    seed: int,
    request: Measure,
    every_steps: int | None,
    number: int,
) -> float:
    stopwatch = Stopwatch(request.until)
    policy: CheckpointPolicy = NoCheckpoints()
    if every_steps is not None:
        policy = CheckpointPolicy(every_steps=every_steps, every_seconds=float("inf"))
    outcome = run(
        make,
        seed=seed,
        store=CheckpointStore(request.directory, identity={"attempt": number}),
        policy=policy,
        supervisor=stopwatch,
        safe_point_share=0.005 if every_steps else 0.0,
    )
    if isinstance(outcome, Failed):
        raise outcome.error
    return stopwatch.milliseconds
