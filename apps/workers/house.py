"""A worker process's own life: it registers, keeps its leases, hears wishes, sweeps, and leaves.

Each duty has a thread that looks at the database and nothing else, so a broker that is away, or a
beat that is not there, stops none of them.
"""

import logging
import os
import signal
import threading
import time

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection

from apps.operations.attempts.children import Nursery
from apps.operations.attempts.work import HOUSE, House, work_until_idle
from apps.operations.models import Operation
from apps.operations.scheduling import claims, sweeps
from apps.operations.scheduling.holding import Held
from apps.workers import fleet, maintenance, neighbours, registry, reports
from apps.workers.duties import LAST_RETRY_SECONDS, Duties
from apps.workers.inventory import capabilities, memory_bytes, visible_devices
from apps.workers.models import Worker
from trainops import process_identity, worker_health
from trainops.process.protocol import now
from trainops.serving import Serving

logger = logging.getLogger(__name__)
SAVE_MARGIN_SECONDS = 3.0  # between the last moment of a child and the end of the worker
WATCHDOG_MARGIN_SECONDS = 2.0
GONE_SECONDS = 5.0  # what the kernel gets to end the children of a worker that was killed


class Keeper:
    """Opens the house, runs its duties, and closes it in time."""

    def __init__(self, house: House = HOUSE) -> None:
        self.house = house
        self.closing = threading.Event()
        self.duties = Duties()
        self.limits = settings.THRESHOLDS

    def open(self, *, worker_id: str, serving: Serving) -> None:
        house = self.house
        house.worker_id = worker_id
        house.is_registered = False  # it takes nothing before: see `neighbours`
        house.kinds, house.labels = list(serving.kinds), list(serving.labels)
        house.memory_bytes = memory_bytes()
        house.holding.slots = serving.slots
        house.holding.devices = visible_devices()
        house.nursery = Nursery()
        house.nursery.open()
        limits = self.limits
        self.duties.begin(
            limits.reregistration_check_interval_seconds,
            self._be_registered,
            "registry",
            longest_pause=LAST_RETRY_SECONDS,
        )
        self.duties.begin(limits.health_check_interval_seconds, self._keep_leases, "leases")
        self.duties.begin(limits.cancel_poll_seconds, self._hear_wishes, "wishes")
        self.duties.begin(limits.health_check_interval_seconds, self._look_at_storage, "storage")
        self.duties.begin(limits.orphan_check_interval_seconds, self._sweep, "sweep")
        self.duties.begin(maintenance.CLEAN_UP_CHECK_SECONDS, self._clean_up, "clean-up")

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
        self.duties.are_over.set()
        worker_health.forget(self.house.worker_id)
        try:
            registry.deregister(worker_id=self.house.worker_id)
        except (DatabaseError, InterfaceError) as error:
            logger.warning("could not deregister: %s", error)
        connection.close()

    def _watchdog(self, seconds: float) -> None:
        """With the broker partitioned Celery never comes to its end; the process must."""
        time.sleep(seconds + WATCHDOG_MARGIN_SECONDS)
        logger.error("still here after %g s: ending now", seconds + WATCHDOG_MARGIN_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)

    def _keep_leases(self) -> None:
        """Renew every lease in one UPDATE, and say that this worker is alive."""
        house = self.house
        self._say_healthy()
        sent_at = now()
        held = {(each.operation_id, each.attempt): each for each in house.holding.all()}
        owned = claims.renew(house.worker_id, held)
        for key, each in held.items():
            if key in owned or self._got_back(key, each):
                each.renewed_at = sent_at
            else:
                each.is_lost = True
        self._say_alive()
        sweeps.WATCH.saw_the_database()

    def _say_healthy(self) -> None:
        """Tell the health probe of this machine; before the database, which may be away."""
        house, running = self.house, self.house.holding.all()
        status = Worker.Status.BUSY if running else Worker.Status.AVAILABLE
        if self.closing.is_set() or house.holding.is_draining:
            status = Worker.Status.DRAINING
        try:
            worker_health.tell(
                worker_id=house.worker_id,
                status=status,
                current_operation=running[0].operation_id if running else "",
                valid_seconds=self.limits.health_check_timeout_seconds,
            )
        except OSError as error:
            logger.warning("cannot write the file for the health probe: %s", error)

    def _got_back(self, key: tuple[str, int], held: Held) -> bool:
        """Whether an attempt that was given up is this worker's again (a restored database).

        Not one whose lease was out of sight for long: its supervisor is ending it just now.
        """
        is_fresh = now() - held.renewed_at <= self.limits.fence_kill_seconds
        return is_fresh and reports.take_back(self.house.worker_id, key)

    def _say_alive(self) -> None:
        running, trouble = self.house.holding.all(), self.duties.trouble
        standing = registry.heartbeat(
            worker_id=self.house.worker_id,
            num_running=self.house.holding.num_taken,
            current_operation_id=running[0].operation_id if running else "",
            last_error=trouble,
        )
        if standing is None:
            self._be_registered()
            return
        self.house.holding.drain(standing.is_draining)
        self.duties.has_been_told(trouble)

    def _be_registered(self) -> None:
        """Register at the start, and again when the row has vanished (a database restored).

        Once for each process, whatever row there is: one that was killed may have left it.
        """
        house = self.house
        registry.forget_gone()
        if self.duties.are_over.is_set():
            return
        if house.is_registered and registry.is_known(worker_id=house.worker_id):
            return
        neighbours.recover_ended(actor=house.worker_id, wait_seconds=GONE_SECONDS)
        running = house.holding.all()
        trouble = self.duties.trouble
        registry.register(
            worker_id=house.worker_id,
            worker_type="celery",
            host=house.host,
            pid=os.getpid(),
            process=process_identity.identity(),
            kinds=house.kinds,
            labels=house.labels,
            slots=house.holding.slots,
            capabilities=capabilities(),
            is_draining=self.closing.is_set() or house.holding.is_draining,
            num_running=house.holding.num_taken,
            current_operation_id=running[0].operation_id if running else "",
            last_error=trouble,
        )
        self.duties.has_been_told(trouble)
        if not house.is_registered:
            house.is_registered = True
            self._look_for_work()  # messages that came before went by

    def _hear_wishes(self) -> None:
        """Read the stop requests of all that run here in one SELECT, then look for work."""
        held = {each.operation_id: each for each in self.house.holding.all()}
        wishes = Operation.objects.filter(pk__in=held).exclude(stop_requested="")
        for operation_id, attempt, stop in wishes.values_list("pk", "attempt", "stop_requested"):
            if held[operation_id].attempt == attempt:
                held[operation_id].stop = stop
        self._look_for_work()

    def _look_for_work(self) -> None:
        """Claim what waits, in a thread of its own, if there is room."""
        if self.house.can_take_something():
            threading.Thread(target=work_until_idle, args=[self.house], daemon=True).start()

    def _look_at_storage(self) -> None:
        """Look, and tell the registry. A storage that does not answer holds up only this thread."""
        house = self.house
        house.look_at_storage()
        fleet.report_storage(
            worker_id=house.worker_id,
            free_bytes=house.disk_bytes or 0,
            problem=house.storage_problem,
        )

    def _clean_up(self) -> None:
        maintenance.clean_up_if_due(actor=self.house.worker_id)

    def _sweep(self) -> None:
        maintenance.sweep(actor=self.house.worker_id)


KEEPER = Keeper()
