"""Write down how an attempt ended, under its fence; whatever it said, something true is written."""

import logging
import time
from typing import Any

from django.conf import settings
from django.db import InterfaceError, InternalError, OperationalError, connection

from apps.checkpoints import services as checkpoints
from apps.operations.attempts.ending import Cancelled, Completed, Ending, Interrupted
from apps.operations.attempts.ledger import Ledger
from apps.operations.lifecycle import Reason, State
from apps.operations.models import Attempt, Operation
from apps.operations.scheduling import claims
from apps.operations.scheduling.holding import Held
from apps.operations.scheduling.poison import own_fault
from apps.operations.scheduling.saved import with_what_was_saved
from trainops.patience import at_most
from trainops.process.protocol import now

logger = logging.getLogger(__name__)
AWAY = (OperationalError, InterfaceError, InternalError)  # a later try may go through
RETRY_SECONDS = 1.0
STOPPED = frozenset({Reason.SHUTDOWN, Reason.TIME_LIMIT, Reason.LEASE_LOST, Reason.STALLED})
OUTCOMES = {
    Reason.SHUTDOWN: Attempt.Outcome.PREEMPTED,
    Reason.LEASE_LOST: Attempt.Outcome.LOST,
    Reason.WORKER_LOST: Attempt.Outcome.LOST,
}


def conclude(ledger: Ledger, held: Held, ending: Ending) -> None:
    """Write the end down, if it is still this attempt's to say; try as long as a lease lasts.

    What the database can never take (a text that is none) is replaced by a plain ending.
    """
    lease = settings.THRESHOLDS.orphan_timeout_seconds
    deadline = now() + lease
    while not held.is_lost and now() < min(deadline, held.renewed_at + lease):
        try:
            with at_most(settings.THRESHOLDS.patience_seconds):
                _conclude(ledger, ending)
        except claims.Fenced:
            return
        except AWAY as error:
            logger.warning("%s: could not write its end: %s", ledger.operation.pk, error)
            connection.close()
            time.sleep(RETRY_SECONDS)
        except Exception as error:
            logger.exception("%s: its end cannot be written", ledger.operation.pk)
            ledger.forget()
            ending = _plain(ending, error)
            time.sleep(RETRY_SECONDS)
        else:
            return


def _plain(ending: Ending, error: Exception) -> Ending:
    reason = ending.reason if isinstance(ending, Interrupted) else Reason.HOUSE_ERROR
    return Interrupted(reason, f"how it ended cannot be written down ({type(error).__name__})")


def _conclude(ledger: Ledger, ending: Ending) -> None:
    ledger.flush()
    settle(ledger.operation, ending)


def settle(operation: Operation, ending: Ending) -> None:
    """Turn an ending into the operation's state.

    Raises:
        Fenced: the attempt no longer owns it; nothing was changed.
    """
    match ending:
        case Completed(result=result, reason=reason):
            _complete(operation, result, reason)
        case Cancelled(reason=reason, note=note):
            claims.finish(
                operation, State.CANCELLED, outcome=Attempt.Outcome.CANCELLED,
                reason=reason, note=with_what_was_saved(operation, note),
            )  # fmt: skip
        case Interrupted(reason=reason, note=note) if why := own_fault(operation, reason, note):
            claims.finish(
                operation, State.FAILED, outcome=Attempt.Outcome.FAILED, reason=reason, note=why,
                error={"code": reason, "traceback": "", **(ending.error or {}), "message": why},
            )  # fmt: skip
        case Interrupted(reason=reason, note=note, error=error):
            if reason in STOPPED and error is None:
                note = with_what_was_saved(operation, note)
            if not claims.restart_or_fail(
                operation, reason, actor=operation.worker_id, note=note,
                outcome=OUTCOMES.get(reason, Attempt.Outcome.FAILED), error=error,
            ):  # fmt: skip
                raise claims.Fenced


def _complete(operation: Operation, result: Any, reason: Reason) -> None:
    claims.finish(
        operation, State.COMPLETED, outcome=Attempt.Outcome.COMPLETED, reason=reason,
        note=reason.label,
        result=result, error=None, restarts_used=0,
    )  # fmt: skip
    if not operation.config["checkpoint"]["keep_after_success"]:
        checkpoints.keep_only_the_result(operation.pk)


def cleaned(value: Any) -> Any:
    """Return a message with every text such that any database can hold it."""
    if isinstance(value, str):
        whole = value.encode("utf-8", "replace").decode()  # lone surrogates, of odd file names
        return whole.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if isinstance(value, list):
        return [cleaned(each) for each in value]
    if isinstance(value, dict):
        return {cleaned(key): cleaned(each) for key, each in value.items()}
    return value
