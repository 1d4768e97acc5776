"""Claim what waits, run it, claim the next; until nothing is left or every place is taken."""

import logging
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from django.conf import settings
from django.db import DatabaseError, InterfaceError, close_old_connections, connection

from apps.checkpoints import place, signing_keys, storage
from apps.datasets import services as datasets
from apps.operations import outbox
from apps.operations.attempts import nodes, tracing
from apps.operations.attempts.children import ForkServer, ForkServerUnavailable
from apps.operations.attempts.finalization import finalize
from apps.operations.attempts.outcomes import Interrupted
from apps.operations.attempts.report_writer import ReportWriter
from apps.operations.attempts.supervisor import supervise
from apps.operations.lifecycle import Reason, State
from apps.operations.models import Node, Operation
from apps.operations.placement import Offer
from apps.operations.scheduling import claims
from apps.operations.scheduling.dispatch import dispatch
from apps.operations.scheduling.reservations import is_any_available
from apps.operations.scheduling.slots import SLOTS, RunningAttempt, Slots
from trainops import log_format
from trainops.kind import KINDS
from trainops.process.protocol import now
from trainops.statement_timeout import at_most

logger = logging.getLogger(__name__)


class DatasetLook:
    """What was last seen of the storage of datasets, by a thread that may wait for it for long."""

    def __init__(self) -> None:
        self._seen: str | None = None  # why datasets cannot be read; None: no look has ended
        self._began_at: float | None = None  # of the look that has not ended
        self.has_begun = False

    def begin(self) -> None:
        self.has_begun, self._began_at = True, time.monotonic()

    def look(self) -> None:
        self.begin()
        self._seen = datasets.problem()
        self._began_at = None

    @property
    def problem(self) -> str:
        """Why datasets cannot be read; empty where they can, or the first look is under way."""
        began_at = self._began_at
        waited = 0.0 if began_at is None else time.monotonic() - began_at
        if waited > settings.THRESHOLDS.health_check_timeout_seconds:
            return f"the dataset storage has not responded for {waited:.0f} s"
        return self._seen or ""

    @property
    def can_read(self) -> bool:
        return self._seen == "" and not self.problem


class WorkerRuntime:
    """What a worker process is: an id, slots, a forkserver and what it may take."""

    def __init__(self) -> None:
        self.worker_id = ""
        self.host = socket.gethostname()
        self.kinds: list[str] = sorted(KINDS.computed)
        self.labels: list[str] = []
        self.memory_bytes = 0  # of the machine
        self.disk_bytes: int | None = None  # free for checkpoints, when it was looked at last
        self.storage_problem = ""  # why checkpoints can be neither read nor written, likewise
        self.dataset_look = DatasetLook()
        self.slots: Slots = SLOTS
        self.forkserver: ForkServer | None = None
        self.ends_at: float | None = None  # Unix time; None: it has no end
        self.is_registered = True

    @property
    def is_open(self) -> bool:
        """Whether what is claimed can be started at once, and the registry knows this process.

        Before it does, a process that was killed may have left attempts under the same worker id.
        """
        return self.is_registered and self.forkserver is not None and self.forkserver.is_ready

    @property
    def seconds_left(self) -> float | None:
        """Seconds in which a new operation must reach its first checkpoint; None: no end."""
        if self.ends_at is None:
            return None
        limits = settings.THRESHOLDS
        reserved = limits.shutdown_timeout_seconds + limits.worker_end_margin_seconds
        return self.ends_at - time.time() - reserved

    def offer(self) -> Offer:
        """Return what can be given to the next operation now; nothing while the storage is away.

        Never blocks on a storage that does not answer, except before the first look: the thread
        that calls this also polls for stop requests.
        """
        if self.disk_bytes is None:
            self.look_at_storage()
        if not self.dataset_look.has_begun:
            self.dataset_look.look()
        return Offer(
            kinds=self.kinds,
            labels=self.labels,
            memory_bytes=self.memory_bytes,
            disk_bytes=self.disk_bytes or 0,
            free_slots=() if self.storage_problem else self.slots.free_slots,
            all_slots=self.slots.all_slots,
            seconds_left=self.seconds_left,
            is_node=True,
            has_datasets=self.dataset_look.can_read,
        )

    def look_at_storage(self) -> None:
        """See whether checkpoints can be read and written, and how much disk is free for them."""
        self.storage_problem = place.problem() or signing_keys.problem()
        self.disk_bytes = storage.free_bytes()

    def can_take_something(self) -> bool:
        """Whether there is room, and something waits that fits in."""
        if not self.is_open:
            return False
        offer = self.offer()
        if Node.objects.pending(self.worker_id).exists():
            return True
        return bool(offer.free_slots) and is_any_available(self.worker_id, offer)


RUNTIME = WorkerRuntime()


def work_until_idle(runtime: WorkerRuntime = RUNTIME) -> int:
    """Return how many attempts were run here."""
    num_attempts = 0
    with _connection_of_this_thread():
        while _work_once(runtime):
            num_attempts += 1
    return num_attempts


@contextmanager
def _connection_of_this_thread() -> Iterator[None]:
    """A connection that died while the thread was idle is not used again.

    Where the database is away there is no work to be had; the next look finds what there is.
    """
    try:
        close_old_connections()
        yield
    except (DatabaseError, InterfaceError) as error:
        logger.warning("no look for work: the database did not answer: %s", error)
    finally:
        connection.close()


def _work_once(runtime: WorkerRuntime) -> bool:
    if runtime.forkserver is None or not runtime.is_open:
        return False
    if _take_part(runtime, runtime.forkserver):
        return True
    with ExitStack() as stack:
        with runtime.slots.claiming:
            sent_at, began_ns = now(), time.time_ns()
            offer = runtime.offer()
            if not offer.free_slots:
                return False
            with at_most(settings.THRESHOLDS.patience_seconds):
                operation = claims.claim(
                    worker_id=runtime.worker_id, host=runtime.host, offer=offer
                )
            if operation is None:
                return False
            stack.enter_context(log_format.about(**_named(operation)))
            stack.enter_context(tracing.attempt(operation, began_ns))
            held = stack.enter_context(runtime.slots.hold(_held(operation, offer, sent_at)))
        _run(runtime.forkserver, operation, held)
    if Operation.objects.filter(pk=operation.pk, state=State.RESUMING, not_before=None).exists():
        # Preempted: any other worker may go on at once.
        dispatch(operation.pk, operation.kind, operation.queue)
    outbox.deliver()
    return True


def _take_part(runtime: WorkerRuntime, forkserver: ForkServer) -> bool:
    """Run the node of an attempt that another worker leads, if this one is to; see `nodes`."""
    with ExitStack() as stack:
        with runtime.slots.claiming:
            sent_at = now()
            with at_most(settings.THRESHOLDS.patience_seconds):
                node = nodes.take(runtime.worker_id, runtime.host, runtime.slots)
            if node is None:
                return False
            stack.enter_context(log_format.about(**_named(node.operation)))
            held = stack.enter_context(runtime.slots.hold(nodes.running(node, sent_at)))
        nodes.supervise(forkserver, node, held)
    return True


def _named(operation: Operation) -> dict[str, object]:
    """Return what the log lines of an attempt name."""
    return {"operation": operation.pk, "attempt": operation.attempt, "kind": operation.kind}


def _held(operation: Operation, offer: Offer, sent_at: float) -> RunningAttempt:
    return RunningAttempt(
        operation.pk,
        operation.attempt,
        ",".join(each.id for each in offer.choose(operation.need)),
        sent_at,
        takes_slot=operation.takes_slot,
        processes=operation.processes,
    )


def _run(forkserver: ForkServer, operation: Operation, held: RunningAttempt) -> None:
    logger.info("%s: attempt %s begins", operation.pk, operation.attempt)
    try:
        began_at = time.monotonic()
        child = forkserver.start(f"{operation.pk}:{operation.attempt}")
        held.child_seconds = time.monotonic() - began_at
    except ForkServerUnavailable as error:
        outcome = Interrupted(Reason.PLATFORM_ERROR, str(error))
        finalize(ReportWriter(operation), held, outcome)
        return
    supervise(operation, held, child)
    logger.info("%s: attempt %s has ended", operation.pk, operation.attempt)
