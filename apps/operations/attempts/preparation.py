"""What an attempt starts from: adopted, chosen, and made local where a bucket is the storage."""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from django.conf import settings

from apps.checkpoints import cleaning, copies, place, remote, storage
from apps.checkpoints import services as checkpoints
from apps.checkpoints.models import Checkpoint
from apps.operations import inputs, privacy
from apps.operations.attempts import adoption, recovery
from apps.operations.attempts.ledger import Ledger
from apps.operations.models import Attempt, ClientPart, Operation
from apps.operations.transfers import Beside
from trainops.kind import KINDS
from trainops.runtime.errors import CheckpointCorrupted

DONE = object()


class Preparation:
    """Goes on by a piece whenever it is asked whether it is done, so that its supervisor looks
    around while something is on its way. On a local disk the first piece is all of it.
    """

    def __init__(self, ledger: Ledger, nobody_waits: threading.Event) -> None:
        self.ledger, self.operation = ledger, ledger.operation
        self.nobody_waits = nobody_waits
        self.candidates: list[Checkpoint] = []
        self.models: dict[str, Checkpoint] = {}
        self.storage_id = ""  # that the child looks for beside its directory; empty: a bucket's
        self.part: ClientPart | None = None  # where it is one client's
        self.given: Checkpoint | None = None  # of the server: what a client begins with
        self._pieces = self._prepare()

    def is_done(self) -> bool:
        """Whether `candidates` is what the child may start from, and its `models` are here.

        Raises OSError where the storage does not answer, CheckpointCorrupted where a model is not
        whole, and what the database raises; when it is asked again then, it begins anew.
        """
        try:
            return next(self._pieces, DONE) is DONE
        except BaseException:
            self._pieces = self._prepare()
            raise

    def has_lost_its_checkpoints(self) -> bool:
        """Whether it had some, and may start from none of them."""
        mine = Checkpoint.objects.filter(operation_id=self.operation.pk)
        return not self.candidates and (bool(self.operation.resume_from) or mine.exists())

    def told_to_child(self) -> dict[str, Any]:
        """Return what the child is to do, where it writes, and what it starts from."""
        operation = self.operation
        config = KINDS[operation.kind].parse_config(operation.config)
        return {
            "operation_kind": operation.kind,
            "config": operation.config,
            "inputs": inputs.paths(operation.kind, config, self.models),
            "directory": str(storage.operation_directory(operation.pk)),
            "storage_id": self.storage_id,
            "identity": {
                "operation_id": operation.pk,
                "attempt": operation.attempt,
                "kind": operation.kind,
                "config_hash": operation.config_hash,
                "config": operation.config,
                "inputs": inputs.digests(config.dataset_ids(), self.models),
                **({"part": self.part.name} if self.part is not None else {}),
            },
            "candidates": [_place(each) for each in self.candidates],
            "reserve_bytes": settings.THRESHOLDS.checkpoint_reserve_bytes,
            **self._privacy(),
            **self._part(),
        }

    def _privacy(self) -> dict[str, Any]:
        if not self.operation.uses_ledger:
            return {}
        return {"privacy": privacy.told_to_child(self.ledger.account_id)}

    def _part(self) -> dict[str, Any]:
        if self.part is None or self.given is None:
            return {}
        names = ("round", "client", "epochs", "begins_with")
        told = {name: getattr(self.part, name) for name in names}
        return {"part": {**told, "given": _place(self.given)}}

    def _prepare(self) -> Iterator[None]:
        operation = self.operation
        storage_id = place.require()
        self.storage_id = "" if remote.bucket() is not None else storage_id
        if not operation.resume_from:
            oldest = Attempt.last_begun(operation.pk, before=operation.attempt)
            yield from self._beside(partial(adoption.store, operation, oldest))
            adoption.adopt(self.ledger, oldest)
            recovery.take_over_newest(self.ledger, recovery.in_storage(operation))
        self.models = inputs.models_of(operation)
        for each in self.models.values():
            path, digest = each.artifacts_path, each.manifest_digest
            yield from self._beside(partial(copies.make_local, path, digest))
            inputs.require_committed(each)
        yield from self._prepare_part()
        self.candidates = checkpoints.to_resume_from(operation.pk, operation.resume_from)
        if remote.bucket() is not None:
            yield from self._make_one_local()

    def _prepare_part(self) -> Iterator[None]:
        """Have the server's checkpoint here that a client begins with."""
        self.part = ClientPart.objects.filter(pk=self.operation.pk).first()
        if self.part is None:
            return
        self.given = Checkpoint.objects.filter(pk=self.part.given_id).first()
        if self.given is None:
            raise OSError("its server's checkpoint that it begins with was deleted")
        self.ledger.account_id = self.part.server_id
        path, digest = self.given.artifacts_path, self.given.manifest_digest
        yield from self._beside(partial(copies.make_local, path, digest))

    def _make_one_local(self) -> Iterator[None]:
        """Download the newest that is whole; older ones only where newer ones are not."""
        cleaning.sweep_here()
        for number, each in enumerate(self.candidates):
            copies.forget_some(room_bytes=each.artifacts_size_bytes)
            path, digest = each.artifacts_path, each.manifest_digest
            try:
                yield from self._beside(partial(copies.make_local, path, digest))
            except CheckpointCorrupted as error:
                say_corrupted(self.operation, path, error)
            else:
                self.candidates = self.candidates[number : number + 1]
                return
        self.candidates = []

    def _beside(self, call: Callable[[threading.Event], None]) -> Iterator[None]:
        """Make a call that takes as long as a network does. Raises what it raises."""
        if remote.bucket() is None:
            return
        transfer = Beside(call, stop=self.nobody_waits)
        while not transfer.is_done:
            yield
        transfer.result()


def _place(checkpoint: Checkpoint) -> dict[str, str]:
    path = storage.directory(checkpoint.artifacts_path)
    return {"path": str(path), "digest": checkpoint.manifest_digest}


def say_corrupted(operation: Operation, artifacts_path: str, problem: CheckpointCorrupted) -> None:
    """Mark a checkpoint whose bytes are missing or altered, and record it as an event.

    Raises OSError where the storage itself is away: nothing is known of the bytes then.
    """
    checkpoints.mark(artifacts_path, problem)
    what = "CHECKPOINT_UNAVAILABLE" if problem.is_incomplete else "CHECKPOINT_CORRUPTED"
    note = f"{problem}; trying an older one"
    operation.record(what, actor=operation.worker_id, note=note)
