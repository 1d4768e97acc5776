"""What an attempt starts from: adopted, chosen, and made local where a bucket is the storage."""

import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from django.conf import settings

from apps.checkpoints import (
    cleaning,
    copies,
    integrity,
    place,
    remote,
    signatures,
    signing_keys,
    storage,
)
from apps.checkpoints import services as checkpoints
from apps.checkpoints.models import Checkpoint
from apps.datasets.directories import reading
from apps.ledger import services as ledgers
from apps.operations import inputs
from apps.operations.attempts import recovery, recovery_records
from apps.operations.attempts.report_writer import ReportWriter
from apps.operations.files.uploads import BackgroundCall
from apps.operations.models import Attempt, Operation, Subtask
from apps.operations.scheduling import compatibility
from trainops.kind import KINDS
from trainops.process.protocol import LedgerState, NodeGroup, Start
from trainops.runtime import subtasks as port
from trainops.runtime.checkpoint.manifest import Candidate
from trainops.runtime.errors import CheckpointCorrupted

DONE = object()


class NewerFormat(Exception):
    """A newer version wrote a checkpoint of the operation: it is not damaged, but not readable."""


class Preparation:
    """Continues by a piece whenever it is asked whether it is done, so that its supervisor looks
    around while something is on its way. On a local disk the first piece is all of it.
    """

    def __init__(self, writer: ReportWriter, nobody_waits: threading.Event) -> None:
        self.writer, self.operation = writer, writer.operation
        self.nobody_waits = nobody_waits
        self.candidates: list[Checkpoint] = []
        self.models: dict[str, Checkpoint] = {}
        self.storage_id = ""  # that the child looks for beside its directory; empty: a bucket's
        self.subtask: Subtask | None = None  # if the operation is one
        self.given: Checkpoint | None = None  # of the parent: what a subtask starts from
        self._pieces = self._prepare()

    def is_done(self) -> bool:
        """Whether `candidates` is what the child may start from, and its `models` are here.

        Raises DirectoryAway where a dataset is not here, OSError where the storage does not answer,
        NewerFormat where a newer version wrote a checkpoint, CheckpointCorrupted where a model is
        not whole, and what the database raises; when it is asked again then, it begins anew.
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

    def start_message(
        self, *, grant_until: float, environment: Mapping[str, str], nodes: NodeGroup | None
    ) -> Start:
        """Return the first message to the child: what to run, and what to start from."""
        operation = self.operation
        config = KINDS[operation.kind].parse_config(operation.config)
        paths = inputs.paths(operation.kind, config, self.models)
        return Start(
            kind=operation.kind,
            config=operation.config,
            inputs={name: Path(path) for name, path in paths.items()},
            directory=storage.operation_directory(operation.pk),
            storage_id=self.storage_id,
            operation_id=operation.pk,
            attempt=operation.attempt,
            config_hash=operation.config_hash,
            input_digests=inputs.digests(config.dataset_ids(), self.models),
            has_self_check=config.checkpoint.self_check,
            candidates=tuple(_candidate(each) for each in self.candidates),
            reserve_bytes=settings.THRESHOLDS.checkpoint_reserve_bytes,
            grant_until=grant_until,
            environment=environment,
            ledger=self._ledger_state(),
            subtask=self._subtask(),
            requires_exact=operation.requires_exact,
            num_ranks=config.num_processes * (1 if nodes is None else nodes.num_nodes),
            nodes=nodes,
        )

    def _ledger_state(self) -> LedgerState | None:
        if not self.operation.uses_ledger:
            return None
        return ledgers.state(self.writer.account_id, self.operation.ledger_fields)

    def _subtask(self) -> port.Subtask | None:
        row = self.subtask
        if row is None or self.given is None:
            return None
        return port.Subtask(
            row.group, row.index, row.spec, row.num_steps, row.begins_with, row.name,
            given=_candidate(self.given),
        )  # fmt: skip

    def _prepare(self) -> Iterator[None]:
        operation = self.operation
        config = KINDS[operation.kind].parse_config(operation.config)
        if problem := compatibility.format_problem(operation):
            raise NewerFormat(problem)
        reading.require_reachable(config.dataset_ids())
        storage_id = place.require()
        signing_keys.is_enrolled()  # asked now: what is staged is signed also during an outage
        signing_keys.require_enrolled()
        self.storage_id = "" if remote.bucket() is not None else storage_id
        if not operation.resume_from:
            oldest = Attempt.last_begun(operation.pk, before=operation.attempt)
            yield from self._beside(partial(recovery_records.store, operation, oldest))
            recovery_records.recover(self.writer, oldest)
            recovery.take_over_newest(self.writer, recovery.in_storage(operation))
        self.models = inputs.models_of(operation)
        yield from _make_models_local(self.models, self.nobody_waits)
        yield from self._prepare_subtask()
        self.candidates = acceptable(operation)
        if remote.bucket() is not None:
            yield from self._make_one_local()

    def _prepare_subtask(self) -> Iterator[None]:
        """Have the parent's checkpoint here that a subtask starts from."""
        self.subtask = Subtask.objects.filter(pk=self.operation.pk).first()
        if self.subtask is None:
            return
        self.given = Checkpoint.objects.filter(pk=self.subtask.given_id).first()
        if self.given is None:
            raise OSError("its parent's checkpoint that it starts from was deleted")
        signatures.require(self.given)
        self.writer.account_id = self.subtask.parent_id
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
        return _in_background(call, self.nobody_waits)


def acceptable(operation: Operation) -> list[Checkpoint]:
    """Return the checkpoints to resume from, in this order, that no signature refuses.

    An event names the others. Raises OSError where the storage is away, or this process cannot
    judge signatures that are required.
    """
    found, checks = [], signatures.SignatureChecks()
    for each in checkpoints.to_resume_from(operation.pk, operation.resume_from):
        if problem := signatures.problem_of(each, checks):
            say_corrupted(operation, each.artifacts_path, problem)
        else:
            found.append(each)
    return found


def of_node(operation: Operation, nobody_waits: threading.Event) -> Iterator[None]:
    """Have the inputs of an operation here, where another worker leads its attempt.

    Continues by a piece whenever the next one is asked for. Raises OSError and CheckpointCorrupted.
    """
    config = KINDS[operation.kind].parse_config(operation.config)
    reading.require_reachable(config.dataset_ids())
    yield from _make_models_local(inputs.models_of(operation), nobody_waits)


def _make_models_local(
    models: Mapping[str, Checkpoint], nobody_waits: threading.Event
) -> Iterator[None]:
    for each in models.values():
        path, digest = each.artifacts_path, each.manifest_digest
        yield from _in_background(partial(copies.make_local, path, digest), nobody_waits)
        inputs.require_committed(each)


def _in_background(
    call: Callable[[threading.Event], None], nobody_waits: threading.Event
) -> Iterator[None]:
    """Make a call that takes as long as a network does. Raises what it raises."""
    if remote.bucket() is None:
        return
    call_ = BackgroundCall(call, stop=nobody_waits)
    while not call_.is_done:
        yield
    call_.result()


def _candidate(checkpoint: Checkpoint) -> Candidate:
    return Candidate(storage.directory(checkpoint.artifacts_path), checkpoint.manifest_digest)


def say_corrupted(operation: Operation, artifacts_path: str, problem: CheckpointCorrupted) -> None:
    """Mark a checkpoint whose bytes are missing or altered, and record it as an event.

    Raises OSError where the storage itself is away: nothing is known of the bytes then.
    """
    integrity.mark(artifacts_path, problem)
    what = "CHECKPOINT_UNAVAILABLE" if problem.is_incomplete else "CHECKPOINT_CORRUPTED"
    note = f"{problem}; trying an older one"
    operation.record(what, actor=operation.worker_id, note=note)
