"""A worker process's own life: it registers, keeps its leases, hears wishes, sweeps, and leaves.

Each duty has a thread that looks at the database and nothing else, so a broker that is away, or a
beat that is not there, stops none of them.
"""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable

from django.conf import settings
from django.db import DatabaseError, InterfaceError, close_old_connections, connection

from apps.operations import claims, sweeps
from apps.operations.children import Nursery
from apps.operations.models import Operation
from apps.operations.work import HOUSE, House, work_until_idle
from apps.workers import registry
from apps.workers.inventory import capabilities, visible_devices
from trainops.engines.wire import now

logger = logging.getLogger(__name__)
SAVE_MARGIN_SECONDS = 3.0  # between the last moment of a child and the end of the worker
WATCHDOG_MARGIN_SECONDS = 2.0


class Keeper:
    """Opens the house, runs its duties, and closes it in time."""

    def __init__(self, house: House = HOUSE) -> None:
        self.house = house
        self.closing = threading.Event()
        self.has_left = threading.Event()
        self.limits = settings.THRESHOLDS

    def open(self, *, worker_id: str, slots: int, queues: list[str]) -> None:
        house = self.house
        house.worker_id = worker_id
        house.queues = ["", *queues]
        house.holding.slots = slots
        house.holding.devices = visible_devices()
        house.nursery = Nursery()
        house.nursery.open()
        limits = self.limits
        self._duty(limits.reregistration_check_interval_seconds, self._be_registered, "registry")
        self._duty(limits.health_check_interval_seconds, self._keep_leases, "leases")
        self._duty(limits.cancel_poll_seconds, self._hear_wishes, "wishes")
        self._duty(limits.orphan_check_interval_seconds, self._sweep, "sweep")

    def close(self) -> None:
        """Take nothing new; have every operation saved and handed back in time. Returns at once."""
        if self.closing.is_set():
            return
        self.closing.set()
        limit = self.limits.shutdown_timeout_seconds
        logger.info(
            "stopping: %d operations save a checkpoint first", len(self.house.holding.all())
        )
        self.house.holding.close(gone_in_seconds=limit - SAVE_MARGIN_SECONDS)
        threading.Thread(target=self._watchdog, args=[limit], daemon=True).start()

    def leave(self) -> None:
        """After everything is handed back: deregister, and end the nursery."""
        deadline = time.monotonic() + self.limits.shutdown_timeout_seconds
        while self.house.holding.all() and time.monotonic() < deadline:
            time.sleep(0.05)
        if self.house.nursery is not None:
            self.house.nursery.close()
        self.has_left.set()
        try:
            registry.deregister(worker_id=self.house.worker_id)
        except DatabaseError as error:
            logger.warning("could not deregister: %s", error)
        connection.close()

    def _watchdog(self, seconds: float) -> None:
        """With the broker partitioned Celery never comes to its end; the process must."""
        time.sleep(seconds + WATCHDOG_MARGIN_SECONDS)
        logger.error("still here after %g s: ending now", seconds + WATCHDOG_MARGIN_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)

    def _duty(self, seconds: float, duty: Callable[[], None], name: str) -> None:
        threading.Thread(target=self._repeat, args=[seconds, duty], name=name, daemon=True).start()

    def _repeat(self, seconds: float, duty: Callable[[], None]) -> None:
        while not self.has_left.is_set():
            began = time.monotonic()
            try:
                close_old_connections()  # a connection that died is never used again
                duty()
            except (DatabaseError, InterfaceError) as error:
                logger.warning("%s: the database did not answer: %s", duty.__name__, error)
                connection.close()
            except Exception:  # a worker without this duty would be worse than one bad round
                logger.exception("%s", duty.__name__)
                connection.close()
            self.has_left.wait(max(0.05, seconds - (time.monotonic() - began)))

    def _keep_leases(self) -> None:
        """Renew every lease in one UPDATE, and say that this worker is alive."""
        house = self.house
        sent_at = now()
        held = {(each.operation_id, each.attempt): each for each in house.holding.all()}
        owned = claims.renew(house.worker_id, held)
        for key, each in held.items():
            if key in owned:
                each.renewed_at = sent_at
            else:
                each.is_lost = True
        self._say_alive([each.operation_id for each in held.values()])
        sweeps.WATCH.saw_the_database()

    def _say_alive(self, running: list[str]) -> None:
        standing = registry.heartbeat(
            worker_id=self.house.worker_id,
            num_running=len(running),
            current_operation_id=running[0] if running else "",
        )
        if standing is not None:
            self.house.holding.is_draining = standing.is_draining

    def _be_registered(self) -> None:
        """Register at the start, and again when the row has vanished (a database restored)."""
        house = self.house
        registry.forget_gone()
        if self.has_left.is_set() or registry.is_known(worker_id=house.worker_id):
            return
        running = [each.operation_id for each in house.holding.all()]
        registry.register(
            worker_id=house.worker_id,
            worker_type="celery",
            host=house.host,
            pid=os.getpid(),
            kinds=house.kinds,
            slots=house.holding.slots,
            capabilities=capabilities(),
            is_draining=self.closing.is_set(),
            num_running=len(running),
            current_operation_id=running[0] if running else "",
        )

    def _hear_wishes(self) -> None:
        """One SELECT for all that run here; and take what waits, if there is room."""
        held = {each.operation_id: each for each in self.house.holding.all()}
        wishes = Operation.objects.filter(pk__in=held).exclude(stop_requested="")
        for operation_id, attempt, stop in wishes.values_list("pk", "attempt", "stop_requested"):
            if held[operation_id].attempt == attempt:
                held[operation_id].stop = stop
        nursery = self.house.nursery
        has_room = self.house.holding.num_free and nursery is not None and nursery.is_ready
        if has_room and Operation.objects.due().exists():
            threading.Thread(target=work_until_idle, args=[self.house], daemon=True).start()

    def _sweep(self) -> None:
        sweeps.sweep(actor=self.house.worker_id)


KEEPER = Keeper()
