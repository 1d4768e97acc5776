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

from apps.checkpoints import copies, remote, storage
from apps.checkpoints.models import Checkpoint
from apps.operations import adoption, claims, ending, inputs, privacy, quota
from apps.operations.children import Child
from apps.operations.conclusion import AWAY, cleaned, conclude
from apps.operations.delegation import Delegation
from apps.operations.ending import Cancelled, Ending, Interrupted, Superseded
from apps.operations.holding import Held
from apps.operations.ledger import Ledger
from apps.operations.lifecycle import Reason
from apps.operations.models import Attempt, Operation
from apps.operations.preparation import Preparation, say_corrupted
from apps.operations.transfers import Uploads
from trainops.engines.errors import CheckpointCorrupted
from trainops.engines.registry import ENGINES
from trainops.engines.wire import Hangup, Message, now
from trainops.patience import at_most

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
        self.limits = operation.config["limits"]
        self.ledger = Ledger(operation)
        self.memory = ending.MemoryWatch()
        self.started_at = self.moved_at = time.monotonic()
        self.spent_before = 0.0  # seconds, by the attempts before this one
        self.granted_for = held.renewed_at
        self.told: str = ""  # the directive that was sent
        self.told_at = 0.0
        self.is_started = self.is_out_of_time = False
        self.is_alone = False  # its child has hung up
        self.said_away_at = float("-inf")
        self.heard: deque[Message] = deque()  # not taken in yet: the database may be away
        self.staged: Message | None = None  # stored; waits for its commit
        self.unstored: Message | None = None  # the upload failed, and no other checkpoint follows
        self.nobody_waits = threading.Event()  # ends the transfers
        self.uploads = Uploads(operation.pk, self.nobody_waits)  # staged, not yet in the bucket
        self.preparation = Preparation(self.ledger, self.nobody_waits)
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
        if self.verdict is not None:
            return self.verdict
        self.child.wait(EXIT_SECONDS)
        if self.ended is not None:
            return ending.of_message(
                self.ended,
                is_told=self.told == "PREEMPT",
                is_out_of_time=self.is_out_of_time,
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
        while self.heard and self.staged is None:
            self._hear(self.heard[0])
            self.heard.popleft()
        self._write()
        for each in self.delegation.news():
            self._tell("returned", **each)

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
        operation = self.operation
        self.spent_before = Attempt.seconds_spent(operation.pk)
        config = ENGINES[operation.kind].parse_config(operation.config)
        candidates = self.preparation.candidates
        if not candidates and self._has_lost_its_checkpoints():
            # To start over would throw work away that nobody said may go.
            note = "none of its checkpoints is whole any more"
            self.verdict = Interrupted(Reason.CHECKPOINT_CORRUPTED, note)
            return
        Attempt.objects.filter(operation_id=operation.pk, number=operation.attempt).update(
            pid=self.child.pid
        )
        self.child.wire.send(
            "start",
            operation_kind=operation.kind,
            config=operation.config,
            inputs=inputs.paths(operation.kind, config, self.preparation.models),
            directory=str(storage.operation_directory(operation.pk)),
            identity={
                "operation_id": operation.pk,
                "attempt": operation.attempt,
                "kind": operation.kind,
                "config_hash": operation.config_hash,
            },
            candidates=[
                {"path": str(storage.directory(c.artifacts_path)), "digest": c.manifest_digest}
                for c in candidates
            ],
            reserve_bytes=settings.THRESHOLDS.checkpoint_reserve_bytes,
            environment={"CUDA_VISIBLE_DEVICES": self.held.device},
            grant_until=self._deadline(),
            **self._privacy(),
            **self._part(),
        )
        self.is_started = True

    def _privacy(self) -> dict[str, Any]:
        if not privacy.is_kept(self.operation.config):
            return {}
        return {"privacy": privacy.told_to_child(self.ledger.account_id)}

    def _part(self) -> dict[str, Any]:
        part, given = self.preparation.part, self.preparation.given
        if part is None or given is None:
            return {}
        path = str(storage.directory(given.artifacts_path))
        told = {name: getattr(part, name) for name in ("round", "client", "epochs", "begins_with")}
        return {"part": {**told, "given": {"path": path, "digest": given.manifest_digest}}}

    def _has_lost_its_checkpoints(self) -> bool:
        mine = Checkpoint.objects.filter(operation_id=self.operation.pk)
        return bool(self.operation.resume_from) or mine.exists()

    def leave_behind(self, outcome: Ending) -> None:
        """A staged checkpoint that storage or database did not take is the next owner's."""
        self.nobody_waits.set()
        waiting = [self.unstored, self.staged, *self.uploads.waiting]
        newest = next(filter(None, reversed(waiting)), None)
        if newest is None or isinstance(outcome, Superseded):
            return
        try:
            adoption.leave_behind(self.ledger, newest)
        except OSError as error:
            logger.warning("%s: nothing is left for the next owner: %s", self.operation.pk, error)

    def _deadline(self) -> float:
        """A grant counts from before the renewal that it rests on was sent."""
        return self.held.renewed_at + settings.THRESHOLDS.child_deadline_seconds

    def _listen(self) -> None:
        is_waiting = self.staged is not None or self.ledger.is_full  # for the database
        if is_waiting:
            time.sleep(TICK_SECONDS)  # what the child says meanwhile stays in the pipe
        for key, _ in self.selector.select(0 if is_waiting else TICK_SECONDS):
            if key.fileobj is not self.child.wire:
                self._read_output()
            elif not is_waiting:
                self.heard += (cleaned(message) for message in self.child.wire.read())

    def _hear_the_rest(self) -> None:
        """After the line was cut: what was said before is still in it."""
        self._read_the_rest()
        while self.heard:
            message = self.heard.popleft()
            with self._database_may_be_away():
                self._hear(message)

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
                self._staged(message["checkpoint"])
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
                self._heard_of(message["checkpoint"])
            case "spending":
                self.ledger.spend(message["entries"])
                self._tell("written")
            case "delegate" | "drop":
                self._delegate(message)
            case "ended":
                self.ended = message
            case "corrupted" | "save_failed":
                self._say_trouble(message)

    def _delegate(self, message: Message) -> None:
        if message["kind"] == "delegate":
            self._tell("out", **self.delegation.send(message))
        else:
            self.delegation.drop(message)

    def _say_trouble(self, message: Message) -> None:
        if message["kind"] == "corrupted":
            path = f"{self.operation.pk}/{message['directory']}"
            say_corrupted(self.operation, path, message["error"])
        else:
            self.operation.record(
                "SAVE_FAILED", actor=self.operation.worker_id, note=message["error"]
            )

    def _heard_of(self, checkpoint: Message) -> None:
        """No other waits for its answer, where it is a periodic one."""
        try:
            quota.require(self.operation, checkpoint)
        except (quota.QuotaExceeded, CheckpointCorrupted) as error:
            self._not_stored(checkpoint, error)
        else:
            self._staged(checkpoint)

    def _staged(self, checkpoint: Message) -> None:
        """What is on the disk is stored, but where a bucket is the storage."""
        if remote.bucket() is None:
            self.staged = checkpoint
        else:
            self.uploads.add(checkpoint)

    def _progressed(self, message: Message) -> None:
        if self.ledger.progress(message):
            self.moved_at = time.monotonic()
        if self.first_step is not None and message["step"] > self.first_step:
            self.first_step = None
            self.ledger.timings["first_step"] = round(time.monotonic() - self.started_at, 4)

    def _restored(self, message: Message) -> None:
        self.ledger.timings = {
            "child": round(self.held.child_seconds, 4),
            "restored": round(time.monotonic() - self.started_at, 4),
        }
        self.ledger.restored(message["receipt"], message["step"])
        self.first_step = message["step"]

    def _write(self) -> None:
        """Write what is due. A commit that the database refuses for now is tried again."""
        if self.uploads.waiting and self.staged is None:
            self._upload()
        if self.staged is not None:
            try:
                self.ledger.commit(self.staged)
            except claims.Fenced:
                self._tell("refused")
                raise
            except CheckpointCorrupted as error:
                self._not_stored(self.staged, error)
                self.staged = None
            else:
                self.staged = None
                self._tell("committed")
                if remote.bucket() is not None:
                    copies.forget_some()
        elif self.ledger.is_due:
            self.ledger.flush()

    def _upload(self) -> None:
        """See what became of the oldest upload."""
        checkpoint = self.uploads.waiting[0]
        try:
            is_stored = self.uploads.is_first_stored()
        except (OSError, CheckpointCorrupted) as error:
            self.moved_at = time.monotonic()
            self._not_stored(checkpoint, error)
            return
        if is_stored:
            self.moved_at = time.monotonic()  # it may have waited for nothing else
            self.staged = checkpoint

    def _not_stored(self, checkpoint: Message, error: Exception) -> None:
        """The run goes on without a periodic one; the last one is worth another owner's try."""
        if checkpoint["type"] == Checkpoint.Type.PERIODIC:
            storage.remove(f"{self.operation.pk}/{checkpoint['directory']}")
        else:
            self.unstored = checkpoint
        self._tell("not_stored", error=str(error))

    def _finish_uploads(self) -> None:
        """Its process is gone, but what it staged is worth the wait."""
        self.is_alone = True
        while self.uploads.waiting and self.verdict is None:
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
        """Hold the child to its lease, to what people and the house asked, and to its limits."""
        held, limits = self.held, self.limits
        if held.is_lost:
            self.verdict = Superseded()
        elif now() - held.renewed_at > settings.THRESHOLDS.fence_kill_seconds:
            self.verdict = Interrupted(Reason.LEASE_LOST, "its lease could not be renewed in time")
        elif held.stop == Operation.Stop.KILL:
            self.verdict = Cancelled(Reason.KILLED_BY_PERSON, "killed; its last checkpoint stands")
        elif self._is_overdue("CANCEL", limits["cancel_timeout_seconds"]):
            self.verdict = Cancelled(
                Reason.CANCEL_TIMEOUT,
                f"no safe point within {limits['cancel_timeout_seconds']:g} s; "
                "killed, its last checkpoint stands",
            )
        elif held.must_be_gone_at is not None and now() > held.must_be_gone_at:
            self.verdict = Interrupted(
                Reason.SHUTDOWN,
                "no safe point before its worker had to go; its last checkpoint stands",
            )
        elif not self.is_started:
            self._watch_before_the_start()
        elif self._is_stalled():
            self.verdict = Interrupted(
                Reason.STALLED, f"no progress for {limits['stall_timeout_seconds']:g} s"
            )
        else:
            self._direct()

    def _watch_before_the_start(self) -> None:
        """Its child knows nothing yet, so there is nothing to save and nobody to tell."""
        self.moved_at = time.monotonic()
        if self.held.stop == Operation.Stop.CANCEL:
            self.verdict = Cancelled(Reason.CANCELLED_BY_PERSON, "stopped before it began")
        elif self.held.must_be_gone_at is not None:
            note = "its worker was stopped before it began"
            self.verdict = Interrupted(Reason.SHUTDOWN, note)

    def _is_stalled(self) -> bool:
        """Who waits for an upload or for clients is not stalled, however long that takes."""
        if self.uploads.waiting or self.delegation.is_waiting:
            self.moved_at = time.monotonic()
        elapsed = time.monotonic() - self.moved_at
        return bool(elapsed > self.limits["stall_timeout_seconds"])

    def _is_overdue(self, directive: str, seconds: float) -> bool:
        return self.told == directive and time.monotonic() - self.told_at > seconds

    def _direct(self) -> None:
        if self.held.renewed_at > self.granted_for:
            self.granted_for = self.held.renewed_at
            self._tell("grant", until=self._deadline())
        wish = self._wish()
        if wish and wish != self.told:
            self.told, self.told_at = wish, time.monotonic()
            self._tell("stop", directive=wish)

    def _wish(self) -> str:
        if self.held.stop == Operation.Stop.CANCEL:
            return "CANCEL"
        longest = self.limits.get("max_duration_seconds")
        if longest and self.spent_before + time.monotonic() - self.started_at > longest:
            self.is_out_of_time = True
        return "PREEMPT" if self.is_out_of_time or self.held.must_be_gone_at else ""
