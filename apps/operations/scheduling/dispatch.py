"""Row → broker: one message that holds an id and nothing else, to those who may take it.

A stalled broker must not hang the person who submits, so it is sent in a thread of its own; what
does not arrive is mended by the sweep, since the row is the promise.
"""

import logging
from concurrent.futures import ThreadPoolExecutor

from django.conf import settings
from kombu.exceptions import OperationalError

from trainops.celery import app, queue_of

logger = logging.getLogger(__name__)
_postman = ThreadPoolExecutor(max_workers=1, thread_name_prefix="dispatch")


def dispatch(operation_id: str, kind: str, label: str) -> None:
    """Wake a worker that serves the kind and the label, some time soon; never raises or waits."""
    if settings.DISPATCH_IS_ON:
        _postman.submit(_send, operation_id, queue_of(kind, label))


def _send(operation_id: str, queue: str) -> None:
    try:
        app.send_task("trainops.wake", args=[operation_id], queue=queue, ignore_result=True)
    except (OperationalError, OSError) as error:
        logger.warning("the broker did not accept the message for %s: %s", operation_id, error)
