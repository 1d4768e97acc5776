"""Row → broker: one message that holds an id and nothing else, sent beside the request.

A stalled broker must not hang the person who submits, so sending happens in a thread of its own;
what does not arrive is mended by the sweep, since the row is the promise.
"""

import logging
from concurrent.futures import ThreadPoolExecutor

from django.conf import settings
from kombu.exceptions import OperationalError

from trainops.celery import app

logger = logging.getLogger(__name__)
_postman = ThreadPoolExecutor(max_workers=1, thread_name_prefix="dispatch")


def dispatch(operation_id: str) -> None:
    """Wake a worker for this operation, some time soon; never raises, never waits."""
    if settings.DISPATCH_IS_ON:
        _postman.submit(_send, operation_id)


def _send(operation_id: str) -> None:
    try:
        app.send_task("trainops.wake", args=[operation_id], ignore_result=True)
    except (OperationalError, OSError) as error:
        logger.warning("the broker did not take the message for %s: %s", operation_id, error)
