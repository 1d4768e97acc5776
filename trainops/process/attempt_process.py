"""The process of one attempt: it computes, and answers to its supervisor over the wire.

It has no database, no credentials and no way to decide how the operation ends. Four things end it
when its supervisor is gone: the kernel (PR_SET_PDEATHSIG), the end of the wire, the supervisor's
own kill, and a timer of the kernel that only a grant moves on, which fires even while the
interpreter is stuck in foreign code.
"""

import math
import os
import queue
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from trainops.kind import KINDS, Kind
from trainops.process import selfcheck, subtask_client, twin
from trainops.process.protocol import Hangup, Message, Wire, now
from trainops.runtime import errors, lossless, reproducibility
from trainops.runtime.attempt import Attempt
from trainops.runtime.checkpoint.manifest import staged
from trainops.runtime.checkpoint.store import (
    Candidate,
    Checkpoint,
    CheckpointPolicy,
    CheckpointStore,
    CheckpointType,
)
from trainops.runtime.config import OperationConfig
from trainops.runtime.job import Progress, ResumableJob
from trainops.runtime.ledger import Entry, MemoryLedger
from trainops.runtime.loop import Directive, Failed, Outcome, Stopped, Succeeded, run
from trainops.runtime.receipt import Receipt

REPORT_SECONDS = 0.25  # how often progress goes over the wire, whatever the length of a step
LISTEN_SECONDS = 0.5
SAVE_SHARE = 1 / 3  # of a grant: what is left of it when the child saves, in case no other comes
SALVAGE_SHARE = 1 / 5  # the same, when it saves what it has in memory if no safe point came
MAX_POINTS = 2000  # of metrics kept back between two reports


def main(descriptor: int) -> int:
    """Run the attempt that arrives on this end of the wire; return the exit code."""
    wire = Wire(socket.socket(fileno=descriptor), max_bytes=math.inf)
    start, *more = _first_messages(wire)
    second = _second(start, descriptor)  # before there are threads
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    line = _Line(wire, grant_until=start["grant_until"], second=second)
    for number in (signal.SIGTERM, signal.SIGUSR1):  # the latter: some time before a batch job ends
        signal.signal(number, line.hear_signal)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    line.listen(more)
    try:
        line.told(_run(start, line))
    except errors.LeaseLost:
        return 0  # somebody else owns the operation: touch nothing, say nothing
    except Exception as error:  # noqa: BLE001 - the one place where an attempt's endings are told
        line.ended("house_error", error)
    return 0


def _first_messages(wire: Wire) -> list[Message]:
    """Return what the supervisor says first; a stop may come with it."""
    messages: list[Message] = []
    while not messages:
        messages += wire.read()
    return messages


def _second(start: Message, descriptor: int) -> twin.Twin | None:
    """Return the process that will check a checkpoint; a client's part has none (ADR 30)."""
    if "part" in start or not start["config"]["checkpoint"].get("self_check", True):
        return None
    return twin.fork(partial(_checked, start), closing=[descriptor])


def _checked(start: Message, wire: Wire) -> None:
    """Do the second process's work."""
    engine, config, inputs = _prepared(start)

    def make_job(spent: Iterable[Entry]) -> ResumableJob:
        if "privacy" not in start:
            return engine.make_job(config, inputs)
        secret = bytes.fromhex(start["privacy"]["secret"])
        return engine.make_job(config, inputs, MemoryLedger(spent, secret=secret, is_durable=True))

    selfcheck.attend(make_job, config.seed, wire)


def _prepared(start: Message) -> tuple[Kind, OperationConfig, dict[str, Path]]:
    os.environ.update(start["environment"])
    engine = KINDS[start["operation_kind"]]
    config = engine.parse_config(start["config"])
    reproducibility.set_determinism(config.deterministic, config.threads)
    return engine, config, {name: Path(path) for name, path in start["inputs"].items()}


def _run(start: Message, line: "_Line") -> Outcome:
    engine, config, inputs = _prepared(start)
    store = CheckpointStore(
        Path(start["directory"]),
        identity=start["identity"],
        candidates=[Candidate(Path(c["path"]), c["digest"]) for c in start["candidates"]],
        reserve_bytes=start["reserve_bytes"],
        storage_id=start["storage_id"],
    )
    policy = CheckpointPolicy(
        every_steps=config.checkpoint.every_steps,
        every_seconds=config.checkpoint.every_seconds,
        least_seconds=config.checkpoint.least_seconds,
    )
    ledger = _Ledger(line, start["privacy"]) if "privacy" in start else None
    part = subtask_client.part_of(start["part"]) if "part" in start else None
    line.begin_self_check(config, ledger)
    return run(
        lambda: (
            engine.make_subtask(config, inputs, ledger, part)
            if part
            else line.looked_at(engine.make_job(config, inputs, ledger, line.errands))
        ),
        seed=config.seed,
        store=store,
        policy=policy,
        supervisor=line,
        begun=line.begun,
    )


class _Line:
    """The loop's supervisor, as seen from inside the child.

    Threads that come here: the loop, those that save beside it, and the one that listens; and one
    that saves what is in memory where the loop does not answer.
    """

    def __init__(
        self,
        wire: Wire,
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
        self.unanswered: deque[queue.SimpleQueue[Message]] = deque()  # commits, the oldest first
        self.written: queue.SimpleQueue[Message] = queue.SimpleQueue()  # of what was spent
        self.errands = subtask_client.Errands(self._send)
        self._is_signalled = False
        self._next_report = 0.0
        self._last: Progress | None = None
        self._sent: Progress | None = None
        self._sending = threading.Lock()
        self._attempt: Attempt | None = None
        self._salvaging = threading.Lock()
        self._salvage_at = math.inf  # on the clock of deadlines
        self.self_check: selfcheck.SelfCheck | None = None
        self._granted(grant_until)

    # What the loop calls.

    def begun(self, attempt: Attempt) -> None:
        self._attempt = attempt

    def begin_self_check(self, config: OperationConfig, ledger: MemoryLedger | None) -> None:
        if self.second is None:
            return
        spent = ledger.spent if ledger else tuple
        # To repeat steps of a distributed run, its clients would have to train again.
        advances = 0 if config.is_distributed else selfcheck.ADVANCES
        self.self_check = selfcheck.SelfCheck(self.second, self.self_checked, spent, advances)

    def looked_at(self, job: ResumableJob) -> ResumableJob:
        return job if self.self_check is None else self.self_check.of(job)

    def report(self, progress: Progress) -> Directive:
        self._last = progress
        if self.self_check is not None:
            self.self_check.reported(progress)
        if progress.metrics:
            values = {name: float(value) for name, value in progress.metrics.items()}
            self.points.append((progress.step, time.time(), values))
        if self.clock() >= self._next_report or len(self.points) > MAX_POINTS:
            if self.self_check is not None:
                self.self_check.look()
            self._report()
        return self.directive

    def restored(self, receipt: Receipt) -> None:
        self._send(
            "restored", receipt=receipt.to_json(), step=receipt.step,
            measured_to=receipt.measured_to,
        )  # fmt: skip
        if receipt.checkpoint:
            self.errands.saved(receipt.step, receipt.checkpoint)

    def corrupted(self, candidate: Candidate, error: errors.CheckpointCorrupted) -> None:
        self._send(
            "corrupted", directory=candidate.path.name, missing=error.missing,
            altered=error.altered, reason=error.reason,
        )  # fmt: skip

    def checkpointed(self, checkpoint: Checkpoint) -> None:
        self._report()
        answer: queue.SimpleQueue[Message] = queue.SimpleQueue()
        with self._sending:
            self.unanswered.append(answer)
            self._speak("staged", checkpoint=staged(checkpoint))
        match answer.get():
            case {"kind": "refused"}:
                raise errors.LeaseLost
            case {"kind": "not_stored", "error": error}:
                raise errors.SaveFailed(checkpoint.step, error)
        self.errands.saved(checkpoint.step, checkpoint.path.name)
        if self.self_check is not None:
            self.self_check.checkpointed(checkpoint)

    def self_checked(self, finding: selfcheck.Finding) -> None:
        self._send("self_check", **finding.to_json())

    def save_failed(self, error: errors.SaveFailed) -> None:
        self.errands.problem = str(error)
        self._send("save_failed", error=str(error))

    def spend(self, entries: Sequence[Entry]) -> None:
        """Return once this is written down; if it never is, the supervisor ends this process."""
        self._send("spending", entries=[entry.to_json() for entry in entries])
        self.written.get()

    # What the end of the attempt calls.

    def told(self, outcome: Outcome) -> None:
        self._report()
        match outcome:
            case Succeeded(result=result):
                self._succeeded(result)
            case Stopped(directive=directive):
                self._send(
                    "ended", how="stopped", directive=directive.name,
                    is_signalled=self._is_signalled,
                )  # fmt: skip
            case Failed(error=error):
                self.ended("failed", error)

    def _succeeded(self, result: Mapping[str, Any]) -> None:
        try:
            told = lossless.encode(dict(result))
        except TypeError as error:  # the job's: its result is to be JSON-safe
            self.ended("failed", error)
        else:
            self._send("ended", how="succeeded", result=told)

    def ended(self, how: str, error: BaseException) -> None:
        trace = "".join(traceback.format_exception(error))
        self._send(
            "ended", how=how, code=_code(error, how), message=f"{type(error).__name__}: {error}",
            traceback=trace[-20_000:],
        )  # fmt: skip

    def hear_signal(self, *_: object) -> None:
        """Save and stop, as when told over the wire."""
        self._is_signalled = True
        self.stop(Directive.PREEMPT)

    # What the listening thread does.

    def listen(self, heard: Sequence[Message] = ()) -> None:
        """Hear what comes from now on, after what came before."""
        for message in heard:
            self._hear(message)
        threading.Thread(target=self._listen, name="wire", daemon=True).start()

    def stop(self, directive: Directive) -> None:
        self.directive = directive
        self.errands.wake()

    def salvage(self, kind: CheckpointType) -> None:
        """Have the newest safe point saved by a thread of its own: the loop may never answer.

        Every request is acknowledged and answered, also while an earlier one is being worked on.
        """
        threading.Thread(target=self._save_what_is_there, args=[kind], daemon=True).start()

    def _save_what_is_there(self, kind: CheckpointType) -> None:
        self._send("salvaging", type=str(kind))
        try:
            with self._salvaging:
                if self._attempt is not None:
                    self._attempt.salvage(kind)
        except errors.LeaseLost:
            return  # somebody else owns the operation: say nothing
        except errors.SaveFailed as error:
            self.save_failed(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the supervisor awaits an answer
            step = self._last.step if self._last else 0
            self.save_failed(errors.SaveFailed(step, f"{type(error).__name__}: {error}"))
        self._send("salvaged", type=str(kind))

    def _listen(self) -> None:
        while True:
            self._mind_the_time()
            if not select.select([self.wire], [], [], LISTEN_SECONDS)[0]:
                self._report(wait=False)  # a long step must not keep back what was said before
                continue
            try:
                for message in self.wire.read():
                    self._hear(message)
            except Hangup:
                _end_everything()

    def _hear(self, message: Message) -> None:
        match message["kind"]:
            case "grant":
                self._granted(message["until"])
            case "stop":
                self.stop(Directive[message["directive"]])
            case "salvage":
                self.salvage(CheckpointType(message["type"]))
            case "written":
                self.written.put(message)
            case "out" | "returned":
                self.errands.hear(message)
            case "committed" | "refused" | "not_stored":
                self.unanswered.popleft().put(message)

    def _mind_the_time(self) -> None:
        if now() > self._until:  # the machine slept, or the supervisor is frozen
            _end_everything()
        if now() > self._save_at and self.directive is Directive.PROCEED:
            self.stop(Directive.PREEMPT)  # nobody renews: what is saved now, the next owner adopts
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
            points = [self.points.popleft() for _ in range(len(self.points))]
            self._speak(
                "progress", step=progress.step, total_steps=progress.total_steps,
                place=progress.place, points=points,
            )  # fmt: skip
        finally:
            self._sending.release()

    def _send(self, kind: str, **fields: Any) -> None:
        with self._sending:
            self._speak(kind, **fields)

    def _speak(self, kind: str, **fields: Any) -> None:
        try:
            self.wire.send(kind, **fields)
        except Hangup:
            _end_everything()


class _Ledger(MemoryLedger):
    """The house's ledger, as this process was told of it."""

    def __init__(self, line: _Line, told: Mapping[str, Any]) -> None:
        spent = (Entry(**entry) for entry in told["spent"])
        super().__init__(spent, secret=bytes.fromhex(told["secret"]), is_durable=True)
        self._line = line

    def write(self, entries: Sequence[Entry]) -> None:
        self._line.spend(entries)
        super().write(entries)


def _end_everything() -> None:
    """Nobody is there to answer to: end this process and all that it started."""
    os.killpg(0, signal.SIGKILL)


def _code(error: BaseException, how: str) -> str:
    """Return the reason that people treat differently: my bug, my data, the machine."""
    if isinstance(error, errors.NonFiniteLoss):
        return "NON_FINITE_LOSS"
    if isinstance(error, errors.InputError | errors.ConfigError):
        return "INPUT_ERROR"
    if isinstance(error, errors.LedgerMismatch):
        return "PRIVACY_LEDGER_MISMATCH"
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "OUT_OF_MEMORY"
    if isinstance(error, errors.AllCheckpointsCorrupted):
        return "CHECKPOINT_CORRUPTED"
    if isinstance(error, errors.SaveFailed | errors.StorageAway):
        return "STORAGE_ERROR"
    return "HOUSE_ERROR" if how == "house_error" else "JOB_ERROR"
