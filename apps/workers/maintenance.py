"""Background maintenance: functions on the database alone, harmless in any number at once.

Every worker runs it, beat schedules it, and web and beat run it in a thread of their own: with all
workers dead or frozen, no other process would detect their orphans.
"""

import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection

from apps.checkpoints import cleaning
from apps.datasets import services as datasets
from apps.datasets.uploads import services as uploads
from apps.installation import counters, periodic, schema
from apps.notifications import alerts, deliveries, digests
from apps.operations import outbox
from apps.operations.files import exports
from apps.operations.points import extremes, latest_values, packing, retention
from apps.operations.scheduling import budgets, preemption, stuck, sweeps
from apps.operations.studies import advancing
from apps.sinks import services as sinks
from apps.workers import hosts, load, neighbours, registry
from apps.workers.loops import BackgroundLoops, report
from trainops.http import recent_counts, sessions

logger = logging.getLogger(__name__)
CLEAN_UP = "clean-up"
REFUSED = 2  # the exit code of commands that cannot start
CLEAN_UP_CHECK_SECONDS = 60.0  # how often a worker looks whether it is due
CLEAN_UP_RETRY = timedelta(minutes=10)


def sweep(*, actor: str) -> None:
    """Hand back orphaned operations, and continue the follow-up work of ended ones.

    Every part is tried, whatever goes wrong in another one; then the first error is raised.
    """
    parts = (
        partial(neighbours.recover_ended, actor=actor),
        partial(sweeps.sweep, actor=actor),
        registry.release_lost,
        partial(stuck.WATCH.check, actor=actor),
        partial(budgets.enforce, actor=actor),
        partial(preemption.preempt, actor=actor),
        outbox.deliver,
        advancing.advance_if_due,
        latest_values.write_missing,
        partial(hosts.drain_faulty, actor=actor),
    )
    _raise_first("sweep", [error for part in parts if (error := _error_of(part)) is not None])


def _error_of(part: Callable[[], object]) -> Exception | None:
    try:
        part()
    except Exception as error:  # noqa: BLE001 - the caller raises it
        return error
    return None


def _raise_first(task: str, errors: Sequence[Exception]) -> None:
    for other in errors[1:]:
        report(task, other)
    if errors:
        raise errors[0]


def clean_up_if_due(*, actor: str) -> bool:
    """Delete old checkpoints and unowned files, at most once per `cleanup_interval_hours`.

    Every part is tried, as with `sweep`.
    """
    every = timedelta(hours=settings.THRESHOLDS.cleanup_interval_hours)
    if not periodic.claim(CLEAN_UP, every=every):
        return False
    parts: dict[str, Callable[[], object]] = {
        "exports": exports.sweep,
        "operations whose points were packed": packing.pack_left,
        "operations whose extremes were counted": extremes.measure_left,
        "operations whose points were thinned": retention.thin_old,
        "counters": recent_counts.forget_expired,
        "sessions": sessions.forget_expired,
        "deliveries": deliveries.forget_old,
        "samples of load": load.forget_old,
        "uploads": uploads.sweep,
        "dataset files": datasets.sweep_files,
        "checkpoints": partial(cleaning.clean_up, actor=actor),
    }
    errors = []
    for what, part in parts.items():
        try:
            logger.info("cleanup: %s: %r", what, part())
        except OSError as error:
            logger.warning("cleanup: %s: the storage is unavailable: %s", what, error)
            periodic.retry(CLEAN_UP, every=every, after=CLEAN_UP_RETRY)
        except Exception as error:  # noqa: BLE001 - raised below
            errors.append(error)
    _raise_first(CLEAN_UP, errors)
    return True


class Sweeper:
    """Runs the maintenance periodically in a process that is not a worker (web, beat)."""

    def __init__(self) -> None:
        self.loops = BackgroundLoops()
        self._is_started = False

    def start(self, *, actor: str, pid: int | None = None) -> None:
        """Start the threads; a second call does nothing.

        pid: the process to end when a newer version contracts the schema; None: this one.
        """
        if self._is_started:
            return
        self._is_started = True
        limits = settings.THRESHOLDS
        self.loops.start(limits.health_check_interval_seconds, see_the_database, "database")
        seconds, ended = limits.reregistration_check_interval_seconds, pid or os.getpid()
        self.loops.start(seconds, lambda: end_if_refused(ended), "migrations")
        self.loops.start(limits.orphan_check_interval_seconds, lambda: sweep(actor=actor), "sweep")
        self.loops.start(counters.FLUSH_SECONDS, counters.COUNTERS.flush, "counters")
        self.loops.start(deliveries.SEND_SECONDS, notify, "notifications")
        self.loops.start(alerts.CHECK_SECONDS, alerts.check_running, "alerts")
        if settings.SINKS:
            self.loops.start(sinks.CHECK_SECONDS, sinks.write_due, "sinks")


def notify() -> None:
    """Create the digests that are due, and start to send the deliveries that are."""
    digests.create_due()
    deliveries.SENDER.send_due()


def see_the_database() -> None:
    """Record that the database responds; sweeps judge leases only after a while of responses."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    sweeps.DATABASE_CONTACT.saw_the_database()


def end_if_refused(pid: int) -> None:
    """End a process whose version does not work with the database since a migration."""
    try:
        schema.require_known()
    except schema.WrongDatabase as error:
        logger.error("ending: %s", error)  # noqa: TRY400 - it is expected: no traceback
        os.kill(pid, signal.SIGTERM)


SWEEPER = Sweeper()


def require_usable_schema() -> None:
    """End a process at its start if its version does not work with the database.

    Also where migrations are missing: an upgrade applies them before newer processes start. If the
    database does not respond, the process starts, and its loops ask again later. Raises SystemExit.
    """
    try:
        schema.require_usable()
    except schema.WrongDatabase as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(REFUSED) from error
    except (DatabaseError, InterfaceError) as error:
        logger.warning("the migrations of the database are not known yet: %s", error)
    finally:
        connection.close()


def start_in_web() -> None:
    """Sweep in a server process of web, whose parent is granian.

    Raises SystemExit where this version does not work with the database: then granian ends, too.
    """
    require_usable_schema()
    SWEEPER.start(actor="web", pid=os.getppid())
