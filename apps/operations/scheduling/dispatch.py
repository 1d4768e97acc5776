"""Row → broker: one message that holds an id and nothing else, to those who may take it.

A stalled broker must not hang the person who submits, so it is sent in a thread of its own; what
does not arrive is mended by the sweep, since the row is the promise. A header of the message names
the trace of the request.
"""

import logging
from concurrent.futures import ThreadPoolExecutor

from django.conf import settings
from kombu.exceptions import OperationalError

from trainops.celery import app, queue_of
from trainops.tracing import HEADER, TRACING

logger = logging.getLogger(__name__)
TASK = "trainops.wake"
_postman = ThreadPoolExecutor(max_workers=1, thread_name_prefix="dispatch")


def dispatch(operation_id: str, kind: str, label: str) -> None:
    """Wake a worker that serves the kind and the label, some time soon; never raises or waits."""
    if settings.DISPATCH_IS_ON:
        _postman.submit(_send, operation_id, kind, label, TRACING.current())


def _send(operation_id: str, kind: str, label: str, parent: str) -> None:
    named = {"operation": operation_id, "operation_kind": kind}
    try:
        with TRACING.span(f"send {TASK}", named, kind="producer", parent=parent):
            app.send_task(
                TASK,
                args=[operation_id],
                queue=queue_of(kind, label),
                ignore_result=True,
                headers={HEADER: current} if (current := TRACING.current()) else None,
            )
    except (OperationalError, OSError) as error:
        logger.warning("the broker did not accept the message for %s: %s", operation_id, error)
