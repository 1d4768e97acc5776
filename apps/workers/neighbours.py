"""Worker processes of this machine that have ended without a word: their attempts go on at once.

A lease has to run out before anybody may take an attempt over, unless it is certain that nothing
of it is left. On the same machine the kernel knows.
"""

import logging
import time

from apps.operations import claims
from apps.operations.lifecycle import Reason, State
from apps.operations.models import Attempt, Operation
from apps.workers.models import Worker
from trainops import process_identity

logger = logging.getLogger(__name__)
LOOK_SECONDS = 0.2
NOTE = "its worker process was killed, and nothing of the attempt is left"


def recover_ended(*, actor: str, wait_seconds: float = 0.0) -> bool:
    """Hand back what ended workers of this machine ran, and forget them; whether that is all.

    Their children die with them, but it may take the kernel a moment: for so long it waits.
    Called by any process: others' workers are looked at only where their machine is this one.
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
        # A child whose pid was not written down was told nothing yet, and has computed nothing.
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
        logger.warning("worker %s has ended: %d attempts handed back", worker.pk, num_recovered)
    return is_all
