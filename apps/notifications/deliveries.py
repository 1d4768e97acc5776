"""Deliveries: sent with retries, each rule in a thread of its own, and deleted when old."""

import json
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from django.db import connection
from django.db.models import QuerySet
from django.utils import timezone

from apps.notifications import mail, matching, sending
from apps.notifications.models import Delivery, Rule
from trainops import backoff
from trainops.clock import DatabaseNow, seconds_from_now

MAX_TRIES, FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 30, 10.0, 3600.0  # about a day in all
CLAIM_SECONDS = 120.0  # longer than a request takes, with the lookup of its host
SEND_SECONDS = 5.0  # between two looks for what is due
MAX_THREADS = 8  # rules that are sent for at the same time
KEPT_DAYS = 30
PENDING = (Delivery.Status.COLLECTED, Delivery.Status.WAITING)

logger = logging.getLogger(__name__)


class Sender:
    """Sends what is due, each rule in a thread of its own: a slow target does not delay others."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="notification")
        self._busy: set[int] = set()
        self._lock = threading.Lock()

    def send_due(self) -> None:
        """Start to send the deliveries that are due; does not wait for them."""
        for rule_id in _due().order_by().values_list("rule_id", flat=True).distinct():
            with self._lock:
                if rule_id in self._busy:
                    continue
                self._busy.add(rule_id)
            self._threads.submit(self._send_to, rule_id)

    def _send_to(self, rule_id: int) -> None:
        try:
            send_due_to(rule_id)
        except Exception:
            logger.exception("rule %s", rule_id)
        finally:
            connection.close()
            with self._lock:
                self._busy.discard(rule_id)


SENDER = Sender()


def send_due_to(rule_id: int) -> None:
    """Send a rule's due deliveries in order, until one fails, each by the rule as it is then."""
    due = _due().filter(rule_id=rule_id)
    while delivery := due.select_related("rule__user").order_by("pk").first():
        if why := matching.why_off(delivery.rule):
            due.update(status=Delivery.Status.DROPPED, error=why)
            return
        if not _claimed(delivery):
            return  # another process sends it
        if not _sent(delivery):
            return


def _due() -> QuerySet[Delivery]:
    return Delivery.objects.filter(status=Delivery.Status.WAITING, next_at__lte=DatabaseNow())


def _claimed(delivery: Delivery) -> bool:
    """Whether this process may send it now."""
    due = _due().filter(pk=delivery.pk)
    return bool(due.update(next_at=seconds_from_now(CLAIM_SECONDS)))


def _sent(delivery: Delivery) -> bool:
    """Send it and record the result; whether it was delivered or is given up."""
    status, error = None, ""
    try:
        if delivery.rule.channel == Rule.Channel.MAIL:
            mail.send(delivery)
        else:
            status = _post(delivery)
    except sending.NotSent as problem:
        error = str(problem)[:300]
    is_delivered = not error and (status is None or 200 <= status < 300)
    return _recorded(delivery, is_delivered, {"response_status": status, "error": error})


def _post(delivery: Delivery) -> int:
    content = {"delivery_id": delivery.pk, "text": mail.line(delivery.body), **delivery.body}
    body = json.dumps(content).encode()
    timestamp = str(int(timezone.now().timestamp()))
    headers = {
        "User-Agent": "trainops",
        "X-Trainops-Timestamp": timestamp,
        "X-Trainops-Signature": sending.signature(delivery.rule.secret, timestamp, body),
    }
    return sending.post(delivery.rule.target, body, headers)


def _recorded(delivery: Delivery, is_delivered: bool, result: dict[str, object]) -> bool:
    """Write the result of a try; whether there are no more tries."""
    num_tries = delivery.num_tries + 1
    row = Delivery.objects.filter(pk=delivery.pk)
    result = {**result, "num_tries": num_tries}
    if is_delivered:
        row.update(**result, status=Delivery.Status.DELIVERED)
        return True
    if num_tries >= MAX_TRIES:
        logger.warning("%s is given up after %s tries", delivery, num_tries)
        row.update(**result, status=Delivery.Status.GIVEN_UP)
        return True
    pause = backoff.seconds(
        num_tries, first=FIRST_PAUSE_SECONDS, longest=LAST_PAUSE_SECONDS, jitter=0.2
    )
    row.update(**result, next_at=seconds_from_now(pause))
    return False


def forget_old() -> int:
    """Delete deliveries that are older than KEPT_DAYS; return how many."""
    oldest = timezone.now() - timedelta(days=KEPT_DAYS)
    done = Delivery.objects.exclude(status__in=PENDING)
    return done.filter(created_at__lt=oldest).delete()[0]
