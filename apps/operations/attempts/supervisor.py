"""Supervise one attempt: hand the child its work, write down what it reports, end it in time.

Every write is under the fence. The first write that finds the attempt no longer owns the operation
kills the child and touches nothing more.
"""

import logging
import os
import select
import selectors
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.conf import settings
from django.db import connection

from apps.checkpoints import services as checkpoints
from apps.checkpoints import storage
from apps.operations.attempts import ending
from apps.operations.attempts.children import Child
from apps.operations.attempts.conclusion import AWAY, cleaned, conclude
from apps.operations.attempts.ending import Ending, Interrupted, Superseded
from apps.operations.attempts.ledger import Ledger
from apps.operations.attempts.preparation import Preparation, say_corrupted
from apps.operations.attempts.salvage import Salvage
from apps.operations.attempts.storing import Storing
from apps.operations.attempts.watch import Watch
from apps.operations.errors import LedgerBroken
from apps.operations.lifecycle import Reason
from apps.operations.models import Attempt, Operation
from apps.operations.scheduling import claims
from apps.operations.scheduling.holding import Held
from apps.operations.subtasks.delegation import Delegation
from trainops.patience import at_most
from trainops.process import twin
from trainops.process.protocol import Hangup, Message
from trainops.runtime.errors import CheckpointCorrupted

logger = logging.getLogger(__name__)
TICK_SECONDS = 0.1
SAY_AGAIN_SECONDS = 10.0  # that the database is away
EXIT_SECONDS = 5.0  # what a child gets between its last word and its end


def supervise(operation: Operation, held: Held, child: Child) -> None:
    """Run a claimed attempt to its end. When this returns, nothing of its process is left."""
    supervision = Supervision(operation, held, child)
    outcome: Ending = Superseded()
    try:
        outcome = supervision.run()
    except Exception as error:  # not the job's: its code runs in another process
        logger.exception("%s: attempt %s", operation.pk, operation.attempt)
        outcome = Interrupted(Reason.HOUSE_ERROR, f"{type(error).__name__}: {error}")
    finally:
        child.end()
        supervision.close()
    supervision.leave_behind(outcome)
    conclude(supervision.ledger, held, outcome)


class Supervision:
    def __init__(self, operation: Operation, held: Held, child: Child) -> None:
        self.operation, self.held, self.child = operation, held, child
        self.ledger = Ledger(operation)
        self.memory = ending.MemoryWatch()
        self.watch = Watch(held, operation.config["limits"])
        self.is_started = False
        self.is_alone = False  # its child has hung up
        self.said_away_at = float("-inf")
        self.heard: deque[Message] = deque()  # not taken in yet: the database may be away
        self.nobody_waits = threading.Event()  # ends the transfers
        self.storing = Storing(
            self.ledger, self.nobody_waits, tell=self._tell, moved=self.watch.moved
        )
        self.preparation = Preparation(self.ledger, self.nobody_waits)
        self.salvage = Salvage(tell=self._tell)
        self.delegation = Delegation(operation, self.nobody_waits)
        self.ended: Message | None = None
        self.verdict: Ending | None = None
        self.first_step: int | None = None
        self.selector = selectors.DefaultSelector()

    def run(self) -> Ending:
        """Listen, write, watch; until the child has ended or must."""
        self.selector.register(self.child.wire, selectors.EVENT_READ)
        self.selector.register(self.child.output, selectors.EVENT_READ)
        with self.selector:
            try:
                self._follow()
            except claims.Fenced:
                return Superseded()
            except LedgerBroken as error:
                self.verdict = Interrupted(Reason.PRIVACY_LEDGER_MISMATCH, str(error))
        if self.verdict is not None:
            return self.verdict
        self.child.wait(EXIT_SECONDS)
        if self.ended is not None:
            return ending.of_message(
                self.ended,
                is_told=self.watch.told == "PREEMPT",
                is_out_of_time=self.watch.is_out_of_time,
            )
        return ending.of_exit(self.child.exit_code, memory_ran_out=self.memory.ran_out())

    def _follow(self) -> None:
        try:
            while self.verdict is None and self.ended is None:
                with self._database_may_be_away():
                    self._work()
                if self.ended is None:  # what is done already cannot be stopped any more
                    self._watch()
        except Hangup:
            self._hear_the_rest()  # it died, or was killed: how, its last word or its exit says
            self._finish_uploads()

    def _work(self) -> None:
        """Start the child, hear it, write down what is due. Every part can be tried again."""
        if not self.is_started:
            self._start()
            return
        self._listen()
        while self.heard and not self.storing.is_committing:
            self._hear(self.heard[0])
            self.heard.popleft()
        self._write()
        try:
            for each in self.delegation.news():
                self._tell("returned", **each)
        except OSError as error:
            self.verdict = Interrupted(Reason.STORAGE_ERROR, f"what a client saved: {error}")

    def _is_prepared(self) -> bool:
        try:
            is_prepared = self.preparation.is_done()
        except OSError as error:
            self.verdict = Interrupted(Reason.STORAGE_ERROR, f"nothing to start from: {error}")
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
            # To start over would throw work away that nobody said may go.
            note = "none of its checkpoints is whole any more"
            self.verdict = Interrupted(Reason.CHECKPOINT_CORRUPTED, note)
            return
        Attempt.objects.filter(operation_id=operation.pk, number=operation.attempt).update(
            pid=self.child.pid
        )
        self.child.wire.send(
            "start",
            **preparation.told_to_child(),
            environment={"CUDA_VISIBLE_DEVICES": self.held.device},
            grant_until=self.watch.deadline,
        )
        self.is_started = True

    def leave_behind(self, outcome: Ending) -> None:
        """A staged checkpoint that storage or database did not take is the next owner's."""
        self.nobody_waits.set()
        if not isinstance(outcome, Superseded):
            self.storing.leave_behind()

    def _listen(self) -> None:
        is_waiting = self.storing.is_committing or self.ledger.is_full  # for the database
        if is_waiting:
            time.sleep(TICK_SECONDS)  # what the child says meanwhile stays in the pipe
        for key, _ in self.selector.select(0 if is_waiting else TICK_SECONDS):
            if key.fileobj is not self.child.wire:
                self._read_output()
            elif not is_waiting:
                self.heard += (cleaned(message) for message in self.child.wire.read())

    def _hear_the_rest(self) -> None:
        """After the line was cut: what was said before is still in it, and nobody hears answers."""
        self.is_alone = True
        self._read_the_rest()
        while self.heard and self.verdict is None:
            with self._database_may_be_away():
                self._hear(self.heard[0])
                self.heard.popleft()
            is_done = any(message["kind"] == "ended" for message in self.heard)
            if self.heard and self.ended is None and not is_done:
                self._watch()

    def _read_the_rest(self) -> None:
        with suppress(Hangup):
            while select.select([self.child.wire], [], [], 0)[0]:
                self.heard += (cleaned(message) for message in self.child.wire.read())

    def _read_output(self) -> None:
        output = os.read(self.child.output, 1 << 16)
        if output:
            self.ledger.log(output)
        else:
            self.selector.unregister(self.child.output)

    def close(self) -> None:
        """Take in what the child said and printed last: its last save, and the cause of its end."""
        self._read_the_rest()
        for message in self.heard:  # in memory only: its end may be that the database is away
            if message["kind"] == "progress":
                self.ledger.progress(message)
            elif message["kind"] == "staged":
                self.storing.add(message["checkpoint"])
        os.set_blocking(self.child.output, False)
        try:
            while output := os.read(self.child.output, 1 << 16):
                self.ledger.log(output)
        except BlockingIOError:
            pass
        finally:
            self.child.close()

    def _hear(self, message: Message) -> None:
        match message["kind"]:
            case "progress":
                self._progressed(message)
            case "restored":
                self._restored(message)
            case "staged":
                self.storing.heard_of(message["checkpoint"])
            case "spending":
                self.ledger.spend(message["entries"])
                self._tell("written")
            case "delegate" | "drop":
                self._delegate(message)
            case "ended":
                self.ended = message
            case "corrupted" | "save_failed" | "salvaging" | "salvaged" | "self_check":
                self._hear_of_a_checkpoint(message)

    def _delegate(self, message: Message) -> None:
        if message["kind"] == "delegate":
            self._tell("out", **self.delegation.send(message))
        else:
            self.delegation.drop(message)

    def _hear_of_a_checkpoint(self, message: Message) -> None:
        if message["kind"] in ("salvaging", "salvaged"):
            self.salvage.hear(message)
        elif message["kind"] == "self_check":
            if twin.DIED in message["reason"]:
                self.memory.second_died()
            self.ledger.self_checked(message)
        elif message["kind"] == "corrupted":
            path = f"{self.operation.pk}/{message['directory']}"
            say_corrupted(self.operation, path, _problem_of(path, message))
        else:
            self.operation.record(
                "SAVE_FAILED", actor=self.operation.worker_id, note=message["error"]
            )

    def _progressed(self, message: Message) -> None:
        if self.ledger.progress(message):
            self.watch.moved()
        if self.first_step is not None and message["step"] > self.first_step:
            self.first_step = None
            self.ledger.timings["first_step"] = round(self.watch.elapsed_seconds, 4)

    def _restored(self, message: Message) -> None:
        self.ledger.timings = {
            "child": round(self.held.child_seconds, 4),
            "restored": round(self.watch.elapsed_seconds, 4),
        }
        if started_from := message["receipt"]["checkpoint"]:
            checkpoints.heal(f"{self.operation.pk}/{started_from}")
        self.ledger.restored(message["receipt"], message["step"], message["measured_to"])
        self.first_step = message["step"]

    def _write(self) -> None:
        """Write what is due. What the database refuses for now is tried again."""
        if not self.storing.go_on() and self.ledger.is_due:
            self.ledger.flush()

    def _finish_uploads(self) -> None:
        """Its process is gone, but what it staged is worth the wait."""
        while self.storing.is_uploading and self.verdict is None:
            with self._database_may_be_away():
                self._write()
            self._watch()
            time.sleep(TICK_SECONDS)

    def _tell(self, kind: str, **fields: Any) -> None:
        if not self.is_alone:
            self.child.wire.send(kind, **fields)

    @contextmanager
    def _database_may_be_away(self) -> Iterator[None]:
        """The attempt goes on within its lease; what could not be written is kept."""
        try:
            with at_most(settings.THRESHOLDS.patience_seconds):
                yield
        except AWAY as error:
            if time.monotonic() > self.said_away_at + SAY_AGAIN_SECONDS:
                self.said_away_at = time.monotonic()
                logger.warning("%s: could not write: %s", self.operation.pk, error)
            connection.close()
            time.sleep(TICK_SECONDS)

    def _watch(self) -> None:
        """End what must end; tell the child what it is to know."""
        is_waiting = self.storing.is_uploading or self.delegation.is_waiting
        ending = self.watch.ending(is_started=self.is_started, is_waiting=is_waiting)
        self.verdict = self.salvage.before(ending, is_possible=self.is_started) or self.verdict
        if self.is_started and self.verdict is None:
            for kind, fields in self.watch.orders():
                self._tell(kind, **fields)


def _problem_of(artifacts_path: str, message: Message) -> CheckpointCorrupted:
    return CheckpointCorrupted(
        storage.directory(artifacts_path),
        missing=message["missing"],
        altered=message["altered"],
        reason=message["reason"],
    )
