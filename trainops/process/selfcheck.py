"""Check during a run whether a resume would be exact.

A second process loads the attempt's first checkpoint into a job of its own and advances to the step
that the run has reached. Then both have the same state, bit for bit, or the run has state that is
not in its checkpoints. Nothing is written, and the run only waits for the digest of its own state,
once.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import torch

from trainops.process.protocol import Advance, Checked, Finding, Read, ToSecond
from trainops.process.state_digests import digests
from trainops.process.twin import DIED, Twin, TwinFailed
from trainops.process.wire import Wire
from trainops.runtime.checkpoint.manifest import Candidate, Checkpoint, CheckpointType
from trainops.runtime.checkpoint.store import CheckpointPolicy, CheckpointStore
from trainops.runtime.errors import (
    CheckpointCorrupted,
    Machinery,
    SaveFailed,
)
from trainops.runtime.job import Progress, ResumableJob, StateDict
from trainops.runtime.ledger import Entry
from trainops.runtime.loop import Directive, Failed, run
from trainops.runtime.ranks import Ranks
from trainops.runtime.receipt import Receipt

ADVANCES = 3  # of the run, after its checkpoint is committed
TIMEOUT_SECONDS = 600.0
EQUAL, DIFFERS, LOADED, NOT_LOADED, INEXACT, NOT_MADE = (
    "equal", "differs", "loaded", "not_loaded", "inexact", "not_made",
)  # fmt: skip
Job = TypeVar("Job", bound=ResumableJob)
M = TypeVar("M")


class SelfCheck:
    """The run's side. `tell` receives the result, once, in a background thread.

    advances: how many of the run are repeated and compared; 0: the checkpoint is only loaded.
    """

    def __init__(
        self,
        twin: Twin,
        tell: Callable[[Finding], None],
        entries: Callable[[], Iterable[Entry]],
        advances: int = ADVANCES,
    ) -> None:
        self._twin, self._tell, self._entries = twin, tell, entries
        self._job: ResumableJob | None = None
        self._checkpoint: Checkpoint | None = None
        self._step = 0  # that the run had reached when it was last looked at
        self._advances, self._advances_left = advances, advances
        self._is_over = False  # for the loop: it was begun, or given up

    def of(self, job: Job) -> Job:
        """Remember the job, and return it."""
        self._job = job
        return job

    def checkpointed(self, checkpoint: Checkpoint) -> None:
        """Handle a committed checkpoint; only the first one is checked."""
        is_wanted = self._checkpoint is None and not self._is_over
        if not is_wanted or checkpoint.type is not CheckpointType.PERIODIC:
            return
        self._step = checkpoint.step
        try:
            require_room()
        except Exception as error:  # noqa: BLE001 - whatever it is, the run does not end by it
            self._is_over = True
            self._give_up(checkpoint, checkpoint.step, error)
        else:  # it is read at once: a run that saves often lets it go soon
            self._twin.send(Read(Candidate(checkpoint.path, checkpoint.digest)))
            if not self._advances:
                self._begin(checkpoint, checkpoint.step)
        self._checkpoint = checkpoint

    def look(self) -> None:
        """Give up where the second process has died meanwhile, e.g. for want of memory."""
        if not self._is_over and self._twin.has_died():
            self._is_over = True
            self._tell(Finding("", 0, 0, NOT_MADE, reason=_short(TwinFailed(DIED))))

    def reported(self, progress: Progress) -> None:
        """Called between two steps of the run; at the third call its state is digested."""
        if self._checkpoint is None or self._is_over:
            return
        if progress.step > self._step and not progress.is_evaluating:
            self._step = progress.step
            self._advances_left -= 1
            if not self._advances_left:
                self._begin(self._checkpoint, progress.step)

    def _begin(self, checkpoint: Checkpoint, step: int) -> None:
        self._is_over = True
        try:
            own = digests(self._job) if self._job is not None and self._advances else {}
            entries = tuple(self._entries())
        except Exception as error:  # noqa: BLE001 - whatever it is, the run does not end by it
            self._give_up(checkpoint, step, error)
            return
        self._twin.send(Advance(step, entries, is_compared=bool(self._advances)))
        threading.Thread(
            target=self._compare, args=[checkpoint, step, own], name="self-check", daemon=True
        ).start()

    def _compare(self, checkpoint: Checkpoint, step: int, own: dict[str, str]) -> None:
        try:
            answer = self._twin.answer(TIMEOUT_SECONDS)
        except TwinFailed as error:
            self._give_up(checkpoint, step, error)
            return
        if answer.digests is None:
            self._say(checkpoint, step, answer.verdict, answer.parts, answer.reason)
            return
        theirs = answer.digests
        parts = tuple(part for part in {**own, **theirs} if own.get(part) != theirs.get(part))
        self._say(checkpoint, step, DIFFERS if parts else EQUAL, parts)

    def _give_up(self, checkpoint: Checkpoint, step: int, why: BaseException) -> None:
        self._twin.end()
        self._say(checkpoint, step, NOT_MADE, reason=_short(why))

    def _say(
        self, checkpoint: Checkpoint, step: int, verdict: str, parts: tuple[str, ...] = (),
        reason: str = "",
    ) -> None:  # fmt: skip
        name = checkpoint.path.name
        self._tell(Finding(name, checkpoint.step, step, verdict, parts, reason))


def attend(
    make_job: Callable[[Iterable[Entry]], ResumableJob],
    seed: int,
    wire: Wire[ToSecond],
    ranks: Ranks | None = None,
) -> None:
    """Run the second process: read and load the checkpoint, advance, send the digests.

    `make_job` is given the entries of the ledger so far.
    """
    messages = _messages(wire)
    read = _expected(Read, next(messages))
    try:
        kept = _Kept(read.checkpoint)
    except CheckpointCorrupted as error:
        verdict = NOT_MADE if error.is_incomplete else NOT_LOADED
        next(messages)
        wire.send(Checked(verdict, reason=_short(error)))
        return
    advance = _expected(Advance, next(messages))
    second = _Second(
        lambda: make_job(advance.entries), advance.until, is_compared=advance.is_compared
    )
    wire.send(_gone_on(second, seed, kept, ranks))


def _expected(message_class: type[M], message: object) -> M:
    if not isinstance(message, message_class):
        raise TypeError(f"got {type(message).__name__}; expected {message_class.__name__}")
    return message


def _messages(wire: Wire[ToSecond]) -> Iterator[ToSecond]:
    while True:
        yield from wire.read()


def _gone_on(second: "_Second", seed: int, store: CheckpointStore, ranks: Ranks | None) -> Checked:
    try:
        outcome = run(
            second.make,
            seed=seed,
            store=store,
            policy=CheckpointPolicy(every_seconds=float("inf")),
            supervisor=second,
            safe_point_share=0.0,
            ranks=ranks,
        )
    except _Answered as found:
        return found.answer
    except Exception as error:  # noqa: BLE001 - of the machinery: it says nothing of the job
        return Checked(NOT_MADE, reason=_short(error))
    if not isinstance(outcome, Failed):
        return Checked(DIFFERS, reason="the second process ended earlier")
    if isinstance(outcome.error, MemoryError):
        return Checked(NOT_MADE, reason=_short(outcome.error))
    verdict = DIFFERS if second.is_restored else NOT_LOADED
    return Checked(verdict, reason=_short(outcome.error))


def require_room() -> None:
    """Raise MemoryError unless there is memory for a second job of this size."""
    own, free = _memory("/proc/self/status", "VmRSS"), _memory("/proc/meminfo", "MemAvailable")
    if free < own:
        raise MemoryError(f"a second job needs {own >> 20} MiB of memory, {free >> 20} are free")
    if torch.cuda.is_initialized():
        needed = torch.cuda.max_memory_reserved() + 2**30  # what every process takes of a device
        free, _ = torch.cuda.mem_get_info()
        if free < needed:
            raise MemoryError(
                f"a second job needs {needed >> 20} MiB of the GPU, {free >> 20} are free"
            )


class _Answered(Machinery):
    def __init__(self, answer: Checked) -> None:
        super().__init__()
        self.answer = answer


class _Second:
    """The second job's supervisor, which ends it where the answer is known."""

    def __init__(
        self, make_job: Callable[[], ResumableJob], until: int, *, is_compared: bool
    ) -> None:
        self._make_job, self._until, self._is_compared = make_job, until, is_compared
        self._job: ResumableJob | None = None
        self.is_restored = False

    def make(self) -> ResumableJob:
        self._job = self._make_job()
        return self._job

    def restored(self, receipt: Receipt) -> None:
        self.is_restored = True
        if not receipt.exact:
            inexact = [item for item in receipt.items if not item.exact]
            reason = "; ".join(f"{item.part}: {item.note}" for item in inexact)
            parts = tuple(item.part for item in inexact)
            raise _Answered(Checked(INEXACT, parts=parts, reason=reason))
        if not self._is_compared:
            raise _Answered(Checked(LOADED))

    def corrupted(self, candidate: Candidate, error: CheckpointCorrupted) -> None:
        """Do nothing: the error that is raised next reports it."""

    def report(self, progress: Progress) -> Directive:
        if progress.step >= self._until and not progress.is_evaluating:
            raise _Answered(Checked(digests=digests(self._job) if self._job is not None else {}))
        return Directive.PROCEED

    def checkpointed(self, checkpoint: Checkpoint) -> None:
        raise RuntimeError("a self-check writes nothing")

    def save_failed(self, error: SaveFailed) -> None:
        raise RuntimeError("a self-check writes nothing")


class _Kept(CheckpointStore):
    """A checkpoint that was read already. Nothing is ever written here."""

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate.path.parent, identity={}, candidates=[candidate])
        self._restored = super().restore(candidate)

    def restore(self, candidate: Candidate) -> tuple[Checkpoint, StateDict]:
        return self._restored

    def write(self, *_: Any, **__: Any) -> Checkpoint:
        raise RuntimeError("a self-check writes nothing")


def _memory(path: str, name: str) -> int:
    """Return a figure of the kernel's in bytes."""
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0]) * 1024
    raise OSError(f"{path} has no {name}")


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:500]
