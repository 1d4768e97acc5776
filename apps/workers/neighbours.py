"""Hand back the attempts of worker processes of this machine that were killed.

An attempt is taken over only after its lease has expired, unless it is certain that none of its
processes is left. On the same machine the kernel tells this.
"""

import logging
import time

from apps.operations.lifecycle import Reason, State
from apps.operations.models import Attempt, Operation
from apps.operations.scheduling import claims
from apps.workers.models import Worker
from trainops import process_identity

logger = logging.getLogger(__name__)
LOOK_SECONDS = 0.2
NOTE = "the worker process was killed, and no process of the attempt is left"


def recover_ended(*, actor: str, wait_seconds: float = 0.0) -> bool:
    """Hand back attempts of ended workers of this machine; return whether all were handed back.

    The kernel kills their children, which may take a moment; wait at most `wait_seconds` for it.
    Any process may call this: workers of other machines are ignored.
    """
    deadline = time.monotonic() + wait_seconds
    while True:
        ended = [
            worker
            for worker in Worker.objects.exclude(process={})
            if process_identity.has_ended(worker.process)
        ]
        left = [worker for worker in ended if not _hand_back(worker, actor)]
        if not left:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_SECONDS)


def _hand_back(worker: Worker, actor: str) -> bool:
    """Hand back the attempts of a worker whose process has ended; its row goes with the last."""
    running = Operation.objects.filter(state=State.RUNNING, worker_id=worker.pk)
    num_recovered, is_all = 0, True
    for operation in running:
        # A child whose pid was not written down received no message yet, and has computed nothing.
        attempt = operation.attempts.filter(number=operation.attempt)
        pid = attempt.values_list("pid", flat=True).first()
        if pid and not process_identity.group_has_ended(pid):
            is_all = False
            continue
        owned = operation.row.filter(
            state=State.RUNNING, worker_id=worker.pk, attempt=operation.attempt
        )
        num_recovered += claims.restart_or_fail(
            operation,
            Reason.WORKER_LOST,
            owned=owned,
            actor=actor,
            note=NOTE,
            outcome=Attempt.Outcome.LOST,
        )
    if is_all:
        # Only this process's row: another one may have registered under its name meanwhile.
        Worker.objects.filter(pk=worker.pk, process=worker.process).delete()
    if num_recovered:
        logger.warning(
            "worker %s has ended: %d attempts returned to the queue", worker.pk, num_recovered
        )
    return is_all
