"""Upload, commit and acknowledge the checkpoints that an attempt's child has staged."""

import logging
import threading
from collections.abc import Callable

from apps.checkpoints import copies, remote, signatures, signing_keys, storage
from apps.installation.counters import COUNTERS
from apps.operations.attempts import quota, recovery_records
from apps.operations.attempts.report_writer import ReportWriter
from apps.operations.files.uploads import Uploads
from apps.operations.scheduling import claims
from apps.operations.subtasks import services as subtasks
from trainops.process.protocol import Committed, NotStored, Refused
from trainops.runtime.checkpoint.manifest import CheckpointType, StagedCheckpoint
from trainops.runtime.errors import CheckpointCorrupted

logger = logging.getLogger(__name__)


class CheckpointCommitter:
    """Commits the staged checkpoints of one attempt, in order; its child waits for each answer.

    `send` answers the child; `moved` says that something went on.
    """

    def __init__(
        self,
        writer: ReportWriter,
        nobody_waits: threading.Event,
        *,
        send: Callable[[Committed | Refused | NotStored], None],
        moved: Callable[[], None],
    ) -> None:
        self.writer = writer
        self.stored: StagedCheckpoint | None = None  # waits for its commit
        self.unstored: StagedCheckpoint | None = None  # the upload of the last one failed
        self.uploads = Uploads(writer.operation.pk, nobody_waits)
        self._send, self._moved = send, moved

    @property
    def is_uploading(self) -> bool:
        return bool(self.uploads.waiting)

    @property
    def is_committing(self) -> bool:
        return self.stored is not None

    def received(self, checkpoint: StagedCheckpoint) -> None:
        """Accept a checkpoint that the child staged, if the owner's quota allows it.

        The quota does not apply to a checkpoint that subtasks start from: they would never start.
        """
        operation = self.writer.operation
        try:
            if not subtasks.is_awaited(operation, checkpoint.state, checkpoint.step):
                quota.require(operation, checkpoint)
        except (quota.QuotaExceeded, CheckpointCorrupted) as error:
            self._not_stored(checkpoint, error)
        else:
            self.add(checkpoint)

    def add(self, checkpoint: StagedCheckpoint) -> None:
        """What is on the disk is stored, but where a bucket is the storage."""
        self._sign(checkpoint)
        if remote.bucket() is None:
            self.stored = checkpoint
        else:
            self.uploads.add(checkpoint)

    def go_on(self) -> bool:
        """Do what is due; whether there was a commit to be made.

        Raises Fenced, and what the database raises: then the commit is tried again.
        """
        if self.is_uploading and not self.is_committing:
            self._upload()
        if self.stored is None:
            return False
        try:
            self.writer.commit(self.stored)
        except claims.Fenced:
            self._send(Refused())
            raise
        except (CheckpointCorrupted, signing_keys.KeyNotEnrolled) as error:
            self._not_stored(self.stored, error)
            self.stored = None
        else:
            self.stored = None
            self._send(Committed())
            if remote.bucket() is not None:
                copies.forget_some()
        return True

    def leave_behind(self) -> None:
        """What storage or database did not take is the next owner's."""
        waiting = [self.unstored, self.stored, *self.uploads.waiting]
        newest = next(filter(None, reversed(waiting)), None)
        if newest is None:
            return
        try:
            recovery_records.leave_behind(self.writer, newest)
        except OSError as error:
            operation = self.writer.operation
            logger.warning("%s: nothing is left for the next owner: %s", operation.pk, error)

    def _sign(self, checkpoint: StagedCheckpoint) -> None:
        """Sign the staged files. Without this file only the row has the signature."""
        path = f"{self.writer.operation.pk}/{checkpoint.directory}"
        try:
            if signing_keys.was_enrolled():  # the database may be away now
                signatures.write(path, checkpoint.digest)
        except OSError as error:
            logger.warning("%s is not signed in the storage: %s", path, error)

    def _upload(self) -> None:
        """See what became of the oldest upload."""
        checkpoint = self.uploads.waiting[0]
        try:
            is_stored = self.uploads.is_first_stored()
        except (OSError, CheckpointCorrupted) as error:
            self._moved()
            self._not_stored(checkpoint, error)
            return
        if is_stored:
            self._moved()  # it may have waited for nothing else
            self.stored = checkpoint

    def _not_stored(self, checkpoint: StagedCheckpoint, error: Exception) -> None:
        """The run goes on without a periodic one; the last one is worth another owner's try."""
        COUNTERS.add("checkpoint_uploads_failed", kind=self.writer.operation.kind)
        if checkpoint.type is CheckpointType.PERIODIC:
            storage.remove(f"{self.writer.operation.pk}/{checkpoint.directory}")
        else:
            self.unstored = checkpoint
        self._send(NotStored(str(error)))
