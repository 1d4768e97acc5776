"""Claim what waits, run it, claim the next; until nothing is left or every slot is taken."""

import logging
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import close_old_connections, connection

from apps.operations import claims
from apps.operations.children import NoNursery, Nursery
from apps.operations.dispatch import dispatch
from apps.operations.holding import HOLDING, Held, Holding
from apps.operations.lifecycle import Reason, State
from apps.operations.models import Attempt, Operation
from apps.operations.supervisor import supervise
from trainops.engines.registry import ENGINES
from trainops.engines.wire import now

logger = logging.getLogger(__name__)


class House:
    """What a worker process is: an id, slots, a nursery and what it may take."""

    def __init__(self) -> None:
        self.worker_id = ""
        self.host = socket.gethostname()
        self.kinds: list[str] = sorted(ENGINES)
        self.queues: list[str] = [""]
        self.holding: Holding = HOLDING
        self.nursery: Nursery | None = None


HOUSE = House()


def work_until_idle(house: House = HOUSE) -> int:
    """Return how many attempts were run here."""
    num_attempts = 0
    with _connection_of_this_thread():
        while _work_once(house):
            num_attempts += 1
    return num_attempts


@contextmanager
def _connection_of_this_thread() -> Iterator[None]:
    """A connection that died while the thread was idle is not used again."""
    close_old_connections()
    try:
        yield
    finally:
        connection.close()


def _work_once(house: House) -> bool:
    if house.nursery is None or not house.nursery.is_ready:
        return False  # what is claimed can be started at once
    with house.holding.slot() as device:
        if device is None:
            return False
        sent_at = now()
        operation = claims.claim(
            worker_id=house.worker_id,
            host=house.host,
            kinds=house.kinds,
            queues=house.queues,
            has_gpu=bool(device),
        )
        if operation is None:
            return False
        with house.holding.hold(Held(operation.pk, operation.attempt, device, sent_at)) as held:
            _run(house.nursery, operation, held)
    if Operation.objects.filter(pk=operation.pk, state=State.RESUMING, not_before=None).exists():
        dispatch(operation.pk)  # preempted: any other worker may go on at once
    return True


def _run(nursery: Nursery, operation: Operation, held: Held) -> None:
    logger.info("%s: attempt %s begins", operation.pk, operation.attempt)
    try:
        began_at = time.monotonic()
        child = nursery.start(f"{operation.pk}:{operation.attempt}")
        held.child_seconds = time.monotonic() - began_at
    except NoNursery as error:
        claims.restart_or_fail(
            operation,
            Reason.HOUSE_ERROR,
            actor=operation.worker_id,
            note=str(error),
            outcome=Attempt.Outcome.FAILED,
        )
        return
    supervise(operation, held, child)
    logger.info("%s: attempt %s has ended", operation.pk, operation.attempt)
