"""Supervise one attempt: start its child, write what it reports, end it in time.

Every write is under the fence. The first write that finds the attempt no longer owns the operation
kills the child and touches nothing more.
"""

import logging
import threading
import time

from apps.checkpoints import integrity, storage
from apps.checkpoints.signatures import SignatureRefused
from apps.checkpoints.signing_keys import KeyNotEnrolled
from apps.installation.counters import COUNTERS
from apps.ledger.errors import LedgerBroken
from apps.operations import concerns
from apps.operations.attempts import memory, outcomes, tracing
from apps.operations.attempts.children import Child
from apps.operations.attempts.committer import CheckpointCommitter
from apps.operations.attempts.finalization import finalize
from apps.operations.attempts.inbox import TICK_SECONDS, Inbox
from apps.operations.attempts.nodes import Gathering
from apps.operations.attempts.outages import Outages
from apps.operations.attempts.outcomes import AttemptOutcome, Interrupted, Superseded
from apps.operations.attempts.preparation import NewerFormat, Preparation, say_corrupted
from apps.operations.attempts.report_writer import ReportWriter
from apps.operations.attempts.salvage import SalvageDelay
from apps.operations.attempts.watchdog import Watchdog
from apps.operations.lifecycle import Reason
from apps.operations.models import Attempt, Operation
from apps.operations.scheduling import claims
from apps.operations.scheduling.slots import RunningAttempt
from apps.operations.subtasks.manager import SubtaskManager
from trainops.datasets.errors import DirectoryAway
from trainops.process import twin
from trainops.process.process_use import ProcessUse
from trainops.process.protocol import (
    Append,
    Appended,
    Corrupted,
    DropSubtasks,
    Ended,
    Failed,
    Finding,
    Listening,
    MediaLogged,
    NodeSilent,
    OfNodes,
    ProgressUpdate,
    Restored,
    Salvaged,
    Salvaging,
    SaveFailed,
    Staged,
    StartSubtasks,
    Stop,
    Stopped,
    Succeeded,
    ToChild,
    ToSupervisor,
)
from trainops.process.wire import Hangup
from trainops.runtime.errors import CheckpointCorrupted
from trainops.tracing import TRACING

logger = logging.getLogger(__name__)
EXIT_SECONDS = 5.0  # what a child gets between its last word and its end


def supervise(operation: Operation, running: RunningAttempt, child: Child) -> None:
    """Run a claimed attempt to its end. When this returns, nothing of its process is left."""
    supervision = Supervision(operation, running, child)
    outcome: AttemptOutcome = Superseded()
    try:
        outcome = supervision.run()
    except Exception as error:  # not the job's: its code runs in another process
        logger.exception("%s: attempt %s", operation.pk, operation.attempt)
        outcome = Interrupted(Reason.PLATFORM_ERROR, f"{type(error).__name__}: {error}")
    finally:
        child.end()
        supervision.close()
    TRACING.note({"outcome": type(outcome).__name__})
    supervision.leave_behind(outcome)
    supervision.writer.lines.ended(outcome)
    finalize(supervision.writer, running, outcome)


class Supervision:
    def __init__(self, operation: Operation, running: RunningAttempt, child: Child) -> None:
        self.operation, self.running, self.child = operation, running, child
        self.writer = ReportWriter(operation)
        self.memory = outcomes.MemoryWatch()
        self.memory_use = memory.MemoryUse(child.pid)
        self.process_use = ProcessUse(child.pid)
        self.watch = Watchdog(running, operation.config["limits"])
        self.is_started = False
        self.is_alone = False  # its child has hung up
        self.outages = Outages(operation.pk)
        self.inbox = Inbox(child, self.writer.output.add)
        self.nobody_waits = threading.Event()  # ends the transfers
        self.committer = CheckpointCommitter(
            self.writer, self.nobody_waits, send=self._send, moved=self.watch.moved
        )
        self.preparation = Preparation(self.writer, self.nobody_waits)
        self.salvage = SalvageDelay(send=self._send)
        self.gathering = Gathering(operation)
        self.subtasks = SubtaskManager(operation, self.nobody_waits)
        self.ended: Ended | None = None
        self.verdict: AttemptOutcome | None = None
        self.first_step: int | None = None
        self.phases = tracing.phases(operation)

    def run(self) -> AttemptOutcome:
        """Listen, write, watch; until the child has ended or must."""
        with self.inbox.opened():
            try:
                self._follow()
            except claims.Fenced:
                return Superseded()
            except LedgerBroken as error:
                self.verdict = Interrupted(Reason.PRIVACY_LEDGER_MISMATCH, str(error))
        if self.verdict is not None:
            return self.verdict
        self.child.wait(EXIT_SECONDS)
        return memory.explained(self._outcome(), self.memory_use, self.operation.config)

    def _outcome(self) -> AttemptOutcome:
        if self.ended is not None:
            return outcomes.of_message(
                self.ended,
                is_asked=self.watch.is_asked_to_leave,
                is_out_of_time=self.watch.is_out_of_time,
                memory_ran_out=self.memory.ran_out(),
                handback=None if self.running.is_unwanted else self.running.handback,
            )
        return outcomes.of_exit(self.child.exit_code, memory_ran_out=self.memory.ran_out())

    def _follow(self) -> None:
        try:
            while self.verdict is None and self.ended is None:
                with self.outages.tolerated():
                    self._work()
                if self.ended is None:  # what is done already cannot be stopped any more
                    self._watch()
        except Hangup:
            self._handle_the_rest()  # it died, or was killed: how, its last word or its exit says
            self._finish_uploads()

    def _work(self) -> None:
        """Start the child, handle its messages, write what is due. Every part can be retried."""
        if not self.is_started:
            self._start()
            return
        self.inbox.listen(is_waiting=self.committer.is_committing or self.writer.is_full)
        self.memory_use.sample()
        if self.first_step is None and self.writer.step >= 0:  # it has made a step
            self.writer.measured(self.process_use.points(self.writer.step))
        received = self.inbox.received
        while received and not self.committer.is_committing:
            self._handle(received[0])
            received.popleft()
        self._write()
        try:
            for each in self.subtasks.ended():
                self._send(each)
        except KeyNotEnrolled as error:
            self.verdict = Interrupted(Reason.SHUTDOWN, str(error))
        except OSError as error:
            self.verdict = Interrupted(Reason.STORAGE_ERROR, f"the result of a subtask: {error}")
        except SignatureRefused as error:
            note = f"the result of a subtask is not used, and stays: {error}"
            self.verdict = Interrupted(Reason.CHECKPOINT_CORRUPTED, note)

    def _is_prepared(self) -> bool:
        try:
            is_prepared = self.preparation.is_done()
        except DirectoryAway as error:
            self.verdict = Interrupted(Reason.DATASET_AWAY, str(error))
            return False
        except KeyNotEnrolled as error:  # another worker may take it: this one claims nothing
            self.verdict = Interrupted(Reason.SHUTDOWN, str(error))
            return False
        except OSError as error:
            self.verdict = Interrupted(Reason.STORAGE_ERROR, f"nothing to start from: {error}")
            return False
        except NewerFormat as error:
            self.verdict = Interrupted(Reason.PLATFORM_ERROR, str(error))
            return False
        except CheckpointCorrupted as error:
            self.verdict = Interrupted(Reason.CHECKPOINT_CORRUPTED, f"a model it uses: {error}")
            return False
        if not is_prepared:
            time.sleep(TICK_SECONDS)
        return is_prepared

    def _start(self) -> None:
        if not self._is_prepared():
            return
        operation, preparation = self.operation, self.preparation
        self.watch.spent_before = Attempt.seconds_spent(operation.pk)
        if preparation.has_lost_its_checkpoints():
            # Starting over would discard work without permission.
            note = "none of its checkpoints is whole, with no signature that refuses it, any more"
            self.verdict = Interrupted(Reason.CHECKPOINT_CORRUPTED, note)
            return
        Attempt.objects.filter(operation_id=operation.pk, number=operation.attempt).update(
            pid=self.child.pid
        )
        environment = {"CUDA_VISIBLE_DEVICES": self.running.device}
        self.child.wire.send(
            preparation.start_message(
                grant_until=self.watch.deadline,
                environment=environment,
                nodes=self.gathering.group(),
            )
        )
        self.is_started = True
        self.phases.ended("prepare")

    def leave_behind(self, outcome: AttemptOutcome) -> None:
        """A staged checkpoint that storage or database did not take is the next owner's."""
        self.nobody_waits.set()
        if not isinstance(outcome, Superseded):
            self.committer.leave_behind()

    def _handle_the_rest(self) -> None:
        """Handle the messages that were sent before the hangup, without answering them."""
        self.is_alone = True
        self.inbox.read_the_rest()
        received = self.inbox.received
        while received and self.verdict is None:
            with self.outages.tolerated():
                self._handle(received[0])
                received.popleft()
            is_done = any(isinstance(message, Ended) for message in received)
            if received and self.ended is None and not is_done:
                self._watch()

    def close(self) -> None:
        """Keep the child's last messages and output: its last checkpoint, its error."""
        self.inbox.read_the_rest()
        for message in self.inbox.received:  # in memory only: the database may be away
            match message:
                case ProgressUpdate():
                    self.writer.progress(message)
                case MediaLogged():
                    self.writer.logged(message)
                case Staged(checkpoint=checkpoint):
                    self.committer.add(checkpoint)
        try:
            self.inbox.drain_output()
            self.writer.output.add(b"", is_last=True)
        finally:
            self.child.close()

    def _handle(self, message: ToSupervisor) -> None:
        match message:
            case ProgressUpdate():
                self._progressed(message)
            case Restored():
                self._restored(message)
            case Staged(checkpoint=checkpoint):
                self.committer.received(checkpoint)
            case Append(entries=entries):
                self.writer.append(entries)
                self._send(Appended())
            case StartSubtasks():
                self._send(self.subtasks.start(message))
            case DropSubtasks():
                self.subtasks.drop(message)
            case Succeeded() | Stopped() | Failed():
                self.ended = message
            case _:
                self._handle_further(message)

    def _handle_further(
        self,
        message: MediaLogged | Salvaging | Salvaged | Finding | Corrupted | SaveFailed | OfNodes,
    ) -> None:
        match message:
            case MediaLogged():
                self.writer.logged(message)
            case Salvaging() | Salvaged():
                self.salvage.receive(message)
            case Finding(reason=reason):
                if twin.DIED in reason:
                    self.memory.second_died()
                self.writer.self_checked(message)
            case Corrupted(directory=directory):
                path = f"{self.operation.pk}/{directory}"
                say_corrupted(self.operation, path, _problem_of(path, message))
                self.writer.lines.corrupted(message)
            case Listening() | NodeSilent():
                self.gathering.receive(message)
            case SaveFailed(error=error):
                COUNTERS.add("checkpoint_saves_failed", kind=self.operation.kind)
                concerns.not_saved(self.operation, error)
                self.writer.lines.save_failed(error)

    def _progressed(self, report: ProgressUpdate) -> None:
        if self.writer.progress(report):
            self.watch.moved()
        if self.first_step is not None and report.step > self.first_step:
            self.first_step = None
            self.writer.timings["first_step"] = round(self.watch.elapsed_seconds, 4)
            self.phases.ended("first step")

    def _restored(self, message: Restored) -> None:
        self.writer.timings = {
            "child": round(self.running.child_seconds, 4),
            "restored": round(self.watch.elapsed_seconds, 4),
        }
        self.gathering.all_connected()
        receipt = message.receipt
        if receipt.checkpoint:
            integrity.heal(f"{self.operation.pk}/{receipt.checkpoint}")
        self.writer.restored(receipt.to_json(), receipt.step, receipt.measured_to)
        self.first_step = receipt.step
        self.phases.ended("restore")

    def _write(self) -> None:
        """Write what is due. What the database refuses for now is tried again."""
        if not self.committer.go_on() and self.writer.is_due:
            self.writer.flush()

    def _finish_uploads(self) -> None:
        """Its process is gone, but what it staged is worth the wait."""
        while self.committer.is_uploading and self.verdict is None:
            with self.outages.tolerated():
                self._write()
            self._watch()
            time.sleep(TICK_SECONDS)

    def _send(self, message: ToChild) -> None:
        if not self.is_alone:
            self.child.wire.send(message)

    def _problem_of_nodes(self) -> Interrupted | None:
        with self.outages.tolerated():
            if problem := self.gathering.problem():
                return Interrupted(self.gathering.reason, problem)
        return None

    def _watch(self) -> None:
        """End the attempt where it must end; send grants and stops to the child."""
        is_waiting = self.committer.is_uploading or self.subtasks.is_waiting
        outcome = self.watch.outcome(is_started=self.is_started, is_waiting=is_waiting)
        outcome = outcome or self._problem_of_nodes()
        self.verdict = self.salvage.before(outcome, is_possible=self.is_started) or self.verdict
        if self.is_started and self.verdict is None:
            for message in self.watch.messages():
                self._send(message)
                if isinstance(message, Stop):
                    self.writer.lines.stopping(message.directive)


def _problem_of(artifacts_path: str, message: Corrupted) -> CheckpointCorrupted:
    return CheckpointCorrupted(
        storage.directory(artifacts_path),
        missing=message.missing,
        altered=message.altered,
        reason=message.reason,
    )
