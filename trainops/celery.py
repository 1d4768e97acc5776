"""The one Celery application. Messages are wake-ups: losing or repeating them is harmless."""

import os

from celery import Celery
from django.conf import settings

from trainops.serving import NUM_WAIT_SLOTS

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "trainops.settings")

CLEAN_UP_SECONDS = 300.0  # how often beat asks for a clean-up
EVERYBODY = "trainops"  # the queue of beat's own tasks: every worker consumes it


def queue_of(kind: str, label: str = "") -> str:
    """Return the broker's queue for wake-ups about operations of a kind that ask for a label."""
    return ".".join(filter(None, (EVERYBODY, kind, label)))


def _served() -> dict[str, dict[str, str]]:
    """Return the queues that a worker started here consumes: a hint finds who can use it."""
    serving = settings.SERVING
    names = [queue_of(kind, label) for kind in serving.kinds for label in ("", *serving.labels)]
    return {name: {"exchange": name, "routing_key": name} for name in (EVERYBODY, *names)}


app = Celery("trainops")
app.conf.update(
    broker_url=settings.BROKER_URL,
    task_default_queue=EVERYBODY,
    task_queues=_served(),
    # The row is the truth: a message is acknowledged early, fetched one by one, never delayed,
    # and has no result. Late acknowledgement would start a second copy after visibility_timeout.
    task_ignore_result=True,
    task_acks_late=False,
    task_store_errors_even_if_ignored=False,
    task_publish_retry=False,
    worker_prefetch_multiplier=1,
    worker_disable_prefetch=True,
    # Threads: each supervises one child process. Prefork never tells a task about SIGTERM.
    worker_pool="threads",
    # The sweep and a wake-up never wait behind a long operation.
    worker_concurrency=settings.SERVING.slots + NUM_WAIT_SLOTS + 2,
    worker_hijack_root_logger=False,
    worker_send_task_events=False,
    broker_connection_max_retries=None,
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "socket_connect_timeout": 3,
        "health_check_interval": 5,
        # A unix socket cannot be half open and knows no TCP keepalive.
        **({} if "socket://" in settings.BROKER_URL else {"socket_keepalive": True}),
        "socket_timeout": 10,
    },
    task_serializer="json",
    accept_content=["json"],
    timezone="UTC",
    beat_scheduler="django_celery_beat.schedulers:DatabaseScheduler",
    beat_max_loop_interval=5,
    beat_schedule={
        "sweep": {
            "task": "trainops.sweep",
            "schedule": settings.THRESHOLDS.orphan_check_interval_seconds,
            # A sweep not fetched before the next one is due has no use.
            "options": {"expires": settings.THRESHOLDS.orphan_check_interval_seconds},
        },
        # A row remembers when it ran last and decides whether it is due: beat would count a day
        # from its own start, and never come to its end where it is restarted every night.
        "clean-up": {
            "task": "trainops.clean_up",
            "schedule": CLEAN_UP_SECONDS,
            "options": {"expires": CLEAN_UP_SECONDS},
        },
    },
)
app.autodiscover_tasks(["apps.operations", "apps.workers"])
