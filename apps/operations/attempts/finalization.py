"""Store the outcome of an attempt, under its fence."""

import logging
import time
from typing import Any

from django.conf import settings
from django.db import InterfaceError, InternalError, OperationalError, connection

from apps.checkpoints import services as checkpoints
from apps.operations.attempts.outcomes import AttemptOutcome, Cancelled, Completed, Interrupted
from apps.operations.attempts.report_writer import ReportWriter
from apps.operations.lifecycle import Reason, State
from apps.operations.models import Attempt, Operation
from apps.operations.scheduling import claims, restarts
from apps.operations.scheduling.poison import own_fault
from apps.operations.scheduling.saved import with_what_was_saved
from apps.operations.scheduling.slots import RunningAttempt
from trainops.process.protocol import now
from trainops.statement_timeout import at_most

logger = logging.getLogger(__name__)
AWAY = (OperationalError, InterfaceError, InternalError)  # a later try may go through
RETRY_SECONDS = 1.0
STOPPED = restarts.FREE | {Reason.TIME_LIMIT, Reason.LEASE_LOST, Reason.STALLED}
OUTCOMES = {
    **dict.fromkeys(restarts.FREE, Attempt.Outcome.PREEMPTED),
    Reason.LEASE_LOST: Attempt.Outcome.LOST,
    Reason.WORKER_LOST: Attempt.Outcome.LOST,
}


def finalize(writer: ReportWriter, running: RunningAttempt, outcome: AttemptOutcome) -> None:
    """Store the outcome, if this attempt still owns the operation; retry as long as a lease lasts.

    An outcome that the database rejects (a text that is not one) is replaced by a plain one.
    """
    lease = settings.THRESHOLDS.orphan_timeout_seconds
    deadline = now() + lease
    while not running.is_lost and now() < min(deadline, running.renewed_at + lease):
        try:
            with at_most(settings.THRESHOLDS.patience_seconds):
                _finalize(writer, outcome)
        except claims.Fenced:
            return
        except AWAY as error:
            logger.warning("%s: could not write its end: %s", writer.operation.pk, error)
            connection.close()
            time.sleep(RETRY_SECONDS)
        except Exception as error:
            logger.exception("%s: its end cannot be written", writer.operation.pk)
            writer.forget()
            outcome = _plain(outcome, error)
            time.sleep(RETRY_SECONDS)
        else:
            return


def _plain(outcome: AttemptOutcome, error: Exception) -> AttemptOutcome:
    reason = outcome.reason if isinstance(outcome, Interrupted) else Reason.PLATFORM_ERROR
    return Interrupted(reason, f"how it ended cannot be written down ({type(error).__name__})")


def _finalize(writer: ReportWriter, outcome: AttemptOutcome) -> None:
    writer.flush()
    settle(writer.operation, outcome)


def settle(operation: Operation, outcome: AttemptOutcome) -> None:
    """Turn an outcome into the operation's state.

    Raises:
        Fenced: the attempt no longer owns it; nothing was changed.
    """
    match outcome:
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
                error={"code": reason, "traceback": "", **(outcome.error or {}), "message": why},
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
    stopped_by = result.get("stopped_by")
    claims.finish(
        operation, State.COMPLETED, outcome=Attempt.Outcome.COMPLETED, reason=reason,
        note=f"stopped by {stopped_by}" if stopped_by else reason.label,
        result=result, error=None, restarts_used=0,
    )  # fmt: skip
    if not operation.config["checkpoint"]["keep_after_success"]:
        checkpoints.keep_only_the_result(operation.pk)
