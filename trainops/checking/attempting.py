"""Run one attempt of a check in this process, and record what can be compared."""

import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from trainops.checking import clocks, graphs, loaders
from trainops.checking.messages import (
    Attempted,
    AttemptRequest,
    CheckedJob,
    Ending,
    Graph,
    StopPoint,
)
from trainops.kind import KINDS
from trainops.process.rank_process import RankConnection, RankProcess
from trainops.process.ranks import RankGroup, fork
from trainops.runtime import lossless
from trainops.runtime.checkpoint.manifest import Candidate, Checkpoint
from trainops.runtime.checkpoint.store import CheckpointPolicy, CheckpointStore
from trainops.runtime.config import OperationConfig
from trainops.runtime.errors import CheckpointCorrupted, SaveFailed
from trainops.runtime.job import Eventful, Foreseeing, Paced, Progress, ResumableJob
from trainops.runtime.ledger import Entry, MemoryLedger
from trainops.runtime.loop import Directive, Failed, Outcome, Succeeded, run
from trainops.runtime.ranks import ALONE, Devices
from trainops.runtime.receipt import Receipt
from trainops.runtime.reproducibility import set_determinism

MIN_STEPS = 4  # of a run that is cut by its time
SECRET = bytes(32)  # of the ledger: the same in every attempt of a check


def attempt(request: AttemptRequest) -> Attempted:
    """Run the attempt; an error of the recipe is part of the answer."""
    subject = request.subject
    num_ranks = KINDS[subject.kind].parse_config(subject.config).num_processes
    if num_ranks == 1:
        return _attempt(request, None)
    devices = Devices(0, num_ranks)
    ranks = fork(devices, partial(_follow, request), closing=())  # before there are threads
    try:
        return _attempt(request, ranks)
    finally:
        ranks.close()


def _follow(request: AttemptRequest, line: RankConnection) -> None:
    """Do the work of the process of another rank."""
    config = _begun(request)
    make_job = KINDS[request.subject.kind].make_job
    RankProcess(line, config, partial(make_job, config, request.subject.inputs, None, None)).serve()


def _begun(request: AttemptRequest) -> OperationConfig:
    """Return the config, with what the request wants of this process."""
    config = prepared(request.subject)
    if request.clock is not None:
        clocks.set_clock(request.clock)
    if request.draws is not None:
        loaders.observe(request.draws)
    return config


def _attempt(request: AttemptRequest, ranks: RankGroup | None) -> Attempted:
    config = _begun(request)
    if ranks is not None:
        ranks.begin(config)
    devices = ALONE if ranks is None else ranks.devices
    recorder = AttemptRecorder(request)
    ledger = ledger_of(request.subject, request.entries)
    outcome = run(
        lambda: recorder.of(factory(request.subject, config, ledger, devices)()),
        seed=config.seed,
        store=CheckpointStore(
            request.directory,
            identity={"attempt": request.number, "kind": request.subject.kind},
            candidates=[request.candidate] if request.candidate else [],
        ),
        policy=CheckpointPolicy(every_seconds=float("inf")),
        supervisor=recorder,
        ranks=ranks,
    )
    return recorder.answer(outcome, () if ledger is None else tuple(ledger.entries()))


def prepared(subject: CheckedJob) -> OperationConfig:
    """Return the parsed config, with determinism and threads set in this process."""
    config = KINDS[subject.kind].parse_config(subject.config)
    set_determinism(config.deterministic, config.threads)
    return config


def factory(
    subject: CheckedJob,
    config: OperationConfig,
    ledger: MemoryLedger | None,
    devices: Devices = ALONE,
) -> Callable[[], ResumableJob]:
    make_job = KINDS[subject.kind].make_job
    return partial(make_job, config, subject.inputs, ledger, devices=devices)


def ledger_of(subject: CheckedJob, entries: tuple[Entry, ...] = ()) -> MemoryLedger | None:
    """Return the ledger of kinds that have one."""
    if not KINDS[subject.kind].uses_ledger(subject.config):
        return None
    return MemoryLedger(entries, secret=SECRET, is_durable=True)


class AttemptRecorder:
    """The supervisor of an attempt: it stops the run where the request says, and takes notes."""

    def __init__(self, request: AttemptRequest) -> None:
        self._request = request
        self._job: ResumableJob | None = None
        self._began = time.perf_counter()
        self._checkpoint: Checkpoint | None = None
        self._curve: dict[int, dict[str, float]] = {}
        self._points: list[StopPoint] = []
        self._inexact: dict[str, str] = {}
        self._graphs: dict[int, Graph] = {}

    def of(self, job: ResumableJob) -> ResumableJob:
        """Remember the job, and return it."""
        self._job = job
        return job

    def restored(self, receipt: Receipt) -> None:
        self._inexact = {each.part: each.note for each in receipt.items if not each.exact}

    def corrupted(self, candidate: Candidate, error: CheckpointCorrupted) -> None:
        """Do nothing: the error that is raised next reports it."""

    def report(self, progress: Progress) -> Directive:
        if progress.metrics:
            self._curve.setdefault(progress.step, {}).update(progress.metrics)
        milestones = self._milestones(progress.step)
        point = StopPoint(progress.step, progress.is_evaluating, milestones, progress.is_over)
        self._points.append(point)
        self._describe(point)
        return Directive.CANCEL if self._is_end(point) else Directive.PROCEED

    def checkpointed(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint

    def save_failed(self, error: SaveFailed) -> None:
        raise error

    def answer(self, outcome: Outcome, entries: tuple[Entry, ...]) -> Attempted:
        ending: Ending = "stopped"
        error, trace, result = "", "", ""
        if isinstance(outcome, Failed):
            ending, error = "failed", f"{type(outcome.error).__name__}: {outcome.error}"
            trace = "".join(traceback.format_exception(outcome.error))
        elif isinstance(outcome, Succeeded):
            ending, result = "completed", lossless.dumps(dict(outcome.result))
        saved = self._checkpoint
        return Attempted(
            ending=ending,
            error=error,
            trace=trace,
            step=self._points[-1].step if self._points else 0,
            checkpoint=None if saved is None else Candidate(saved.path, saved.digest),
            files={} if saved is None else {each.name: each.blake3 for each in saved.artifacts},
            result=result,
            curve=self._curve,
            points=tuple(self._points),
            inexact=self._inexact,
            uncertain=self._uncertain(),
            entries=entries,
            graphs=tuple(self._graphs.values()),
            seconds=time.perf_counter() - self._began,
        )

    def _uncertain(self) -> Mapping[str, str]:
        job: object = self._job
        return dict(job.uncertain) if isinstance(job, Foreseeing) else {}

    def _milestones(self, step: int) -> int:
        job: object = self._job
        if isinstance(job, Eventful):
            return job.milestones()
        return step // job.checkpoint_steps if isinstance(job, Paced) else 0

    def _describe(self, point: StopPoint) -> None:
        wanted = point.step in self._request.graph_steps and point.step not in self._graphs
        if wanted and not point.is_evaluating and self._job is not None:
            self._graphs[point.step] = Graph(point.step, graphs.describe(self._job))

    def _is_end(self, point: StopPoint) -> bool:
        stop, request = self._request.stop, self._request
        if stop is not None:
            return replace(point, milestones=stop.milestones) == stop
        if point.is_evaluating:
            return False
        num_steps = sum(not each.is_evaluating and each.step > 0 for each in self._points)
        is_late = time.perf_counter() - self._began > request.max_seconds and num_steps >= MIN_STEPS
        return num_steps >= request.max_steps or is_late
