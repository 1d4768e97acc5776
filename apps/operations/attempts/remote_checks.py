"""Load the first checkpoint of an attempt over HTTP on the server, as `checkpoints verify` does.

A worker of this installation has a second process that loads and continues it. A worker over
HTTP is another program, perhaps on another kind of machine: its next steps cannot be compared here,
but it is known after the first checkpoint, not at a resume, whether a fresh job takes it.
"""

import logging
import threading

from django.db import close_old_connections, connection, transaction

from apps.checkpoints.models import Checkpoint
from apps.operations.attempts import selfchecks
from apps.operations.attempts.report_writer import ReportWriter
from apps.operations.files import exchange
from apps.operations.models import Attempt, Operation
from apps.operations.scheduling.claims import Fenced
from trainops.process.protocol import Finding

logger = logging.getLogger(__name__)


def begin(operation: Operation, checkpoint: Checkpoint) -> None:
    """Check a committed checkpoint in the background, if it is the attempt's first periodic one."""
    is_wanted = operation.config["checkpoint"].get("self_check", True)
    if not is_wanted or checkpoint.type != Checkpoint.Type.PERIODIC:
        return
    if _is_first(operation, checkpoint):
        arguments = [operation, checkpoint]
        threading.Thread(target=_check, args=arguments, name="self-check", daemon=True).start()


def _is_first(operation: Operation, checkpoint: Checkpoint) -> bool:
    """Whether no other one of this attempt was begun with; true once only."""
    with transaction.atomic():
        attempts = Attempt.objects.select_for_update()
        attempt = attempts.get(operation=operation, number=operation.attempt)
        receipt = attempt.receipt or selfchecks.AttemptReceipt()
        if "self_check" in receipt:
            return False
        pending = selfchecks.to_json(_finding(checkpoint, selfchecks.PENDING))
        attempt.receipt = {**receipt, "self_check": pending}
        attempt.save(update_fields=["receipt"])
    return True


def _check(operation: Operation, checkpoint: Checkpoint) -> None:
    close_old_connections()
    try:
        ReportWriter(operation).self_checked(_found(checkpoint))
    except Fenced:
        logger.info("%s: its attempt ended before its self-check", operation.pk)
    except Exception:
        logger.exception("%s: the self-check", operation.pk)
    finally:
        connection.close()


def _found(checkpoint: Checkpoint) -> Finding:
    try:
        lines = exchange.load_checks(checkpoint, person=checkpoint.operation_id)
    except Exception as error:  # noqa: BLE001 - the storage, the quota of processes: not the bytes
        return _finding(checkpoint, "not_made", f"{type(error).__name__}: {error}")
    failed = [f"{each['name']}: {each['detail']}" for each in lines if each["level"] == "failed"]
    warned = [each["detail"] for each in lines if each["name"] == "load" and each["level"] != "ok"]
    if not Checkpoint.objects.filter(pk=checkpoint.pk).exists():
        return _finding(checkpoint, "not_made", "it was deleted meanwhile")
    if failed:
        return _finding(checkpoint, "not_loaded", "; ".join(failed)[:500])
    if warned:
        return _finding(checkpoint, "not_made", "; ".join(warned)[:500])
    return _finding(checkpoint, selfchecks.LOADED)


def _finding(checkpoint: Checkpoint, verdict: str, reason: str = "") -> Finding:
    name = checkpoint.artifacts_path.partition("/")[2]
    return Finding(name, checkpoint.step, checkpoint.step, verdict, reason=reason)
