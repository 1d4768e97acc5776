"""The supervisor's side of the loop, as a child sees it: reports, answers, grants and stops."""

import math
import os
import queue
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from trainops.process import protocol, selfcheck, speed, subtask_client, twin
from trainops.process.failure_messages import failure_message
from trainops.process.protocol import (
    Appended,
    Committed,
    Finding,
    Grant,
    NotStored,
    Refused,
    Salvage,
    Stop,
    SubtaskEnded,
    SubtasksStarted,
    ToChild,
    ToSupervisor,
    now,
)
from trainops.process.reason_codes import reason_code
from trainops.process.wire import Hangup, Wire
from trainops.runtime import errors, lossless
from trainops.runtime.checkpoint.manifest import staged
from trainops.runtime.checkpoint.store import Candidate, Checkpoint, CheckpointType
from trainops.runtime.checkpointer import Checkpointer
from trainops.runtime.config import OperationConfig
from trainops.runtime.job import Measured, Progress, ResumableJob
from trainops.runtime.ledger import Entry, MemoryLedger
from trainops.runtime.loop import Directive, Failed, Outcome, Stopped, Succeeded
from trainops.runtime.receipt import Receipt

REPORT_SECONDS = 0.25  # how often progress goes over the wire, whatever the length of a step
LISTEN_SECONDS = 0.5
SAVE_SHARE = 1 / 3  # of a grant: what is left of it when the child saves, in case no other comes
SALVAGE_SHARE = 1 / 5  # the same, when it saves what it has in memory if no safe point came
MAX_POINTS = 2000  # of metrics kept back between two reports
Answer = Committed | Refused | NotStored


class SupervisorClient:
    """The loop's supervisor, as seen from inside the child.

    Threads that come here: the loop, those that save beside it, and the one that listens; and one
    that saves what is in memory where the loop does not answer.
    """

    def __init__(
        self,
        wire: Wire[ToChild],
        *,
        grant_until: float,
        second: twin.Twin | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.wire = wire
        self.clock = clock
        self.second = second
        self.directive = Directive.PROCEED
        self.points: deque[tuple[int, float, dict[str, float]]] = deque()
        self.unanswered: deque[queue.SimpleQueue[Answer]] = deque()  # commits, the oldest first
        self.appended: queue.SimpleQueue[Appended] = queue.SimpleQueue()
        self.subtasks = subtask_client.SubtaskClient(self._send)
        self._is_signalled, self._next_report = False, 0.0
        self._last: Progress | None = None
        self._sent: Progress | None = None
        self._sending = threading.Lock()
        self._attempt: Checkpointer | None = None
        self._salvaging = threading.Lock()
        self._salvage_at = math.inf  # on the clock of deadlines
        self.self_check: selfcheck.SelfCheck | None = None
        self._speed: speed.SpeedMeter | None = None
        self._granted(grant_until)

    # What the loop calls.

    def begun(self, attempt: Checkpointer) -> None:
        self._attempt = attempt

    def begin_self_check(self, config: OperationConfig, ledger: MemoryLedger | None) -> None:
        if self.second is None:
            return
        entries = ledger.entries if ledger else tuple
        # To repeat steps of a distributed run, its subtasks would have to run again.
        advances = 0 if config.is_distributed else selfcheck.ADVANCES
        self.self_check = selfcheck.SelfCheck(self.second, self.self_checked, entries, advances)

    def looked_at(self, job: ResumableJob) -> ResumableJob:
        self._speed = speed.SpeedMeter(job, self.clock) if isinstance(job, Measured) else None
        return job if self.self_check is None else self.self_check.of(job)

    def report(self, progress: Progress) -> Directive:
        self._last, directive = progress, self.directive
        if self.self_check is not None:
            self.self_check.reported(progress)
        for item in progress.media:
            self._send(protocol.MediaLogged.of(item, time.time()))
        if progress.metrics:
            values = {name: float(value) for name, value in progress.metrics.items()}
            self.points.append((progress.step, time.time(), values))
        is_due = self.clock() >= self._next_report or len(self.points) > MAX_POINTS
        is_last = progress.is_over or directive is not Directive.PROCEED
        if self._speed is not None and (is_due or is_last):
            self.points.extend(self._speed.points(progress.step, is_last=is_last))
        if is_due:
            if self.self_check is not None:
                self.self_check.look()
            self._report()
        return directive

    def restored(self, receipt: Receipt) -> None:
        self._send(protocol.Restored(receipt))
        if receipt.checkpoint:
            self.subtasks.saved(receipt.step, receipt.checkpoint)

    def corrupted(self, candidate: Candidate, error: errors.CheckpointCorrupted) -> None:
        missing, altered = tuple(error.missing), tuple(error.altered)
        self._send(protocol.Corrupted(candidate.path.name, missing, altered, error.reason))

    def checkpointed(self, checkpoint: Checkpoint) -> None:
        self._report()
        answer: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        with self._sending:
            self.unanswered.append(answer)
            self._send_locked(protocol.Staged(staged(checkpoint)))
        match answer.get():
            case Refused():
                raise errors.LeaseLost
            case NotStored(error=error):
                raise errors.SaveFailed(checkpoint.step, error)
        self.subtasks.saved(checkpoint.step, checkpoint.path.name)
        if self.self_check is not None:
            self.self_check.checkpointed(checkpoint)

    def self_checked(self, finding: Finding) -> None:
        self._send(finding)

    def save_failed(self, error: errors.SaveFailed) -> None:
        self.subtasks.problem = str(error)
        self._send(protocol.SaveFailed(str(error)))

    def append(self, entries: Sequence[Entry]) -> None:
        """Return once the entries are durable; otherwise the supervisor ends this process."""
        self._send(protocol.Append(tuple(entries)))
        self.appended.get()

    def listening(self, port: int) -> None:
        """Say where the other nodes connect."""
        self._send(protocol.Listening(port))

    def node_silent(self, error: errors.NodeLost) -> None:
        """Say that a node is lost, for which the loop may wait in vain."""
        self._send(protocol.NodeSilent(str(error)))

    # What the end of the attempt calls.

    def finish(self, outcome: Outcome) -> None:
        self._report()
        match outcome:
            case Succeeded(result=result):
                self._succeeded(result)
            case Stopped(directive=directive):
                self._send(protocol.Stopped(_name(directive), self._is_signalled))
            case Failed(error=error):
                self.fail(error, "JOB_ERROR")

    def _succeeded(self, result: Mapping[str, object]) -> None:
        try:
            encoded = lossless.encode(dict(result))
        except TypeError as error:  # the job's: its result is to be JSON-safe
            self.fail(error, "JOB_ERROR")
        else:
            self._send(protocol.Succeeded(encoded))

    def fail(self, error: BaseException, code: str) -> None:
        """Send how the attempt failed. code: the reason where the error has none of its own."""
        trace = "".join(traceback.format_exception(error))
        is_of_rank = isinstance(error, errors.RankFailed | errors.RankLost)
        message = str(error) if is_of_rank else failure_message(error)
        self._send(protocol.Failed(reason_code(error) or code, message, trace[-20_000:]))

    def handle_signal(self, *_: object) -> None:
        """Save and stop, as on `Stop`."""
        self._is_signalled = True
        self.stop(Directive.PREEMPT)

    # What the listening thread does.

    def listen(self, received: Sequence[ToChild] = ()) -> None:
        """Handle the messages received so far, and from now on all others in a thread."""
        for message in received:
            self._handle(message)
        threading.Thread(target=self._listen, name="wire", daemon=True).start()

    def stop(self, directive: Directive) -> None:
        self.directive = directive
        self.subtasks.wake()

    def salvage(self, kind: CheckpointType) -> None:
        """Have the newest safe point saved by a thread of its own: the loop may never answer.

        Every request is acknowledged and answered, also while an earlier one is being worked on.
        """
        threading.Thread(target=self._save_what_is_there, args=[kind], daemon=True).start()

    def _save_what_is_there(self, kind: CheckpointType) -> None:
        self._send(protocol.Salvaging(kind))
        try:
            with self._salvaging:
                if self._attempt is not None:
                    self._attempt.salvage(kind)
        except errors.LeaseLost:
            return  # another attempt owns the operation: report nothing
        except errors.SaveFailed as error:
            self.save_failed(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the supervisor awaits an answer
            step = self._last.step if self._last else 0
            self.save_failed(errors.SaveFailed(step, f"{type(error).__name__}: {error}"))
        self._send(protocol.Salvaged(kind))

    def _listen(self) -> None:
        while True:
            self._mind_the_time()
            if not self.wire.has_input(LISTEN_SECONDS):
                self._report(wait=False)  # a long step must not keep back what was said before
                continue
            try:
                for message in self.wire.read():
                    self._handle(message)
            except Hangup:
                _end_everything()

    def _handle(self, message: ToChild) -> None:
        match message:
            case Grant(until=until):
                self._granted(until)
            case Stop(directive=directive):
                self.stop(Directive[directive])
            case Salvage(type=kind):
                self.salvage(kind)
            case Appended():
                self.appended.put(message)
            case SubtasksStarted() | SubtaskEnded():
                self.subtasks.receive(message)
            case Committed() | Refused() | NotStored():
                self.unanswered.popleft().put(message)

    def _mind_the_time(self) -> None:
        if now() > self._until:  # the machine slept, or the supervisor is frozen
            _end_everything()
        if now() > self._save_at and self.directive is Directive.PROCEED:
            self.stop(Directive.PREEMPT)  # no renewal: the next attempt adopts the save
        if now() > self._salvage_at:
            self._salvage_at = math.inf  # once for each grant
            self.salvage(CheckpointType.SHUTDOWN)

    def _granted(self, until: float) -> None:
        """Take the time that was granted; the timer's default action ends the process."""
        self._until = until
        self._save_at = until - SAVE_SHARE * (until - now())
        self._salvage_at = until - SALVAGE_SHARE * (until - now())
        signal.setitimer(signal.ITIMER_REAL, max(0.001, until - now()))

    def _report(self, *, wait: bool = True) -> None:
        """Send what is new; the lock keeps the order of things."""
        # The first report says where it starts; the first step is reported at once, too.
        self._next_report = 0.0 if self._sent is None else self.clock() + REPORT_SECONDS
        if not self._sending.acquire(blocking=wait):
            return  # another thread is about to; grants must be heard meanwhile
        try:
            progress = self._last
            if progress is None or (progress is self._sent and not self.points):
                return
            self._sent = progress
            points = tuple(self.points.popleft() for _ in range(len(self.points)))
            self._send_locked(
                protocol.ProgressUpdate(progress.step, progress.total_steps, progress.place, points)
            )
        finally:
            self._sending.release()

    def _send(self, message: ToSupervisor) -> None:
        with self._sending:
            self._send_locked(message)

    def _send_locked(self, message: ToSupervisor) -> None:
        try:
            self.wire.send(message)
        except Hangup:
            _end_everything()


def _end_everything() -> None:
    """End this process and all that it started: its supervisor is gone."""
    os.killpg(0, signal.SIGKILL)


def _name(directive: Directive) -> protocol.Directive:
    return "CANCEL" if directive is Directive.CANCEL else "PREEMPT"
