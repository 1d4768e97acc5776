"""What an attempt's child has staged: uploaded where there is a bucket, committed, answered."""

import logging
import threading
from collections.abc import Callable

from apps.checkpoints import copies, remote, storage
from apps.checkpoints.models import Checkpoint
from apps.operations.attempts import adoption, quota
from apps.operations.attempts.ledger import Ledger
from apps.operations.scheduling import claims
from apps.operations.subtasks import clients
from apps.operations.transfers import Uploads
from trainops.process.protocol import Message
from trainops.runtime.errors import CheckpointCorrupted

logger = logging.getLogger(__name__)


class Storing:
    """The staged checkpoints of one attempt, in order: its child waits for an answer to each.

    `tell` answers the child; `moved` says that something went on.
    """

    def __init__(
        self,
        ledger: Ledger,
        nobody_waits: threading.Event,
        *,
        tell: Callable[..., None],
        moved: Callable[[], None],
    ) -> None:
        self.ledger = ledger
        self.stored: Message | None = None  # waits for its commit
        self.unstored: Message | None = None  # the upload failed, and no other checkpoint follows
        self.uploads = Uploads(ledger.operation.pk, nobody_waits)
        self._tell, self._moved = tell, moved

    @property
    def is_uploading(self) -> bool:
        return bool(self.uploads.waiting)

    @property
    def is_committing(self) -> bool:
        return self.stored is not None

    def heard_of(self, checkpoint: Message) -> None:
        """Take in what the child staged. No other waits for its answer, if it is a periodic one.

        What clients on other machines begin a round with is no matter of quota: they would wait for
        ever.
        """
        operation = self.ledger.operation
        try:
            if not clients.wait_for(operation, checkpoint["state"]):
                quota.require(operation, checkpoint)
        except (quota.QuotaExceeded, CheckpointCorrupted) as error:
            self._not_stored(checkpoint, error)
        else:
            self.add(checkpoint)

    def add(self, checkpoint: Message) -> None:
        """What is on the disk is stored, but where a bucket is the storage."""
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
            self.ledger.commit(self.stored)
        except claims.Fenced:
            self._tell("refused")
            raise
        except CheckpointCorrupted as error:
            self._not_stored(self.stored, error)
            self.stored = None
        else:
            self.stored = None
            self._tell("committed")
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
            adoption.leave_behind(self.ledger, newest)
        except OSError as error:
            operation = self.ledger.operation
            logger.warning("%s: nothing is left for the next owner: %s", operation.pk, error)

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

    def _not_stored(self, checkpoint: Message, error: Exception) -> None:
        """The run goes on without a periodic one; the last one is worth another owner's try."""
        if checkpoint["type"] == Checkpoint.Type.PERIODIC:
            storage.remove(f"{self.ledger.operation.pk}/{checkpoint['directory']}")
        else:
            self.unstored = checkpoint
        self._tell("not_stored", error=str(error))
