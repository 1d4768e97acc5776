"""A worker process: registration, leases, stop requests, sweeps, and shutdown.

Each background loop has its own thread and reads only the database, so it runs on without a broker
and without beat.
"""

import logging
import os
import signal
import threading
import time

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection

from apps.checkpoints import signing_keys
from apps.installation import counters, schema
from apps.operations.attempts import nodes
from apps.operations.attempts.children import ForkServer
from apps.operations.attempts.pace import PACE
from apps.operations.attempts.work import RUNTIME, WorkerRuntime, work_until_idle
from apps.operations.models import Operation
from apps.operations.scheduling import claims, gangs, handbacks, sweeps
from apps.operations.scheduling.slots import RunningAttempt
from apps.workers import clock_skew, fleet, maintenance, neighbours, registry, reports, worker_end
from apps.workers.inventory import capabilities, memory_bytes, visible_devices
from apps.workers.load_meter import LoadMeter
from apps.workers.loops import LAST_RETRY_SECONDS, BackgroundLoops
from apps.workers.models import Worker
from apps.workers.worker_end import WorkerEnd
from trainops import process_identity, worker_health
from trainops.process.protocol import now
from trainops.serving import Serving

logger = logging.getLogger(__name__)
SAVE_MARGIN_SECONDS = 3.0  # between the last moment of a child and the end of the worker
WATCHDOG_MARGIN_SECONDS = 2.0
GONE_SECONDS = 5.0  # what the kernel gets to end the children of a worker that was killed


class WorkerProcess:
    """Starts the runtime and its background loops, and closes it in time."""

    def __init__(self, runtime: WorkerRuntime = RUNTIME) -> None:
        self.runtime = runtime
        self.closing = threading.Event()
        self.loops = BackgroundLoops()
        self.limits = settings.THRESHOLDS
        self.end = WorkerEnd(runtime)
        self._meter = LoadMeter()

    def open(self, *, worker_id: str, serving: Serving) -> None:
        runtime = self.runtime
        runtime.worker_id = worker_id
        runtime.is_registered = False  # it takes nothing before: see `neighbours`
        runtime.kinds, runtime.labels = list(serving.kinds), list(serving.labels)
        runtime.ends_at = serving.ends_at
        self.end.idle_exit_seconds = serving.idle_exit_seconds
        runtime.memory_bytes = memory_bytes()
        runtime.slots.count = serving.slots
        runtime.slots.devices = visible_devices()
        runtime.forkserver = ForkServer(when_ready=self._work)  # messages before that went by
        runtime.forkserver.open()
        limits = self.limits
        self.loops.start(
            limits.reregistration_check_interval_seconds,
            self._be_registered,
            "registry",
            longest_pause=LAST_RETRY_SECONDS,
        )
        self.loops.start(limits.health_check_interval_seconds, self._keep_leases, "leases")
        self.loops.start(limits.cancel_poll_seconds, self._read_stop_requests, "stop requests")
        look = runtime.dataset_look
        look.begin()  # so that no other thread waits for it
        self.loops.start(limits.health_check_interval_seconds, look.look, "dataset storage")
        self.loops.start(limits.health_check_interval_seconds, self._look_at_storage, "storage")
        self.loops.start(
            lambda: PACE.sweep_seconds(limits.orphan_check_interval_seconds), self._sweep, "sweep"
        )
        self.loops.start(counters.FLUSH_SECONDS, counters.COUNTERS.flush, "counters")
        self.loops.start(worker_end.CHECK_SECONDS, self._end_in_time, "end")
        self.loops.start(maintenance.CLEAN_UP_CHECK_SECONDS, self._clean_up, "clean-up")

    def close(self) -> None:
        """Take nothing new; have every operation saved and handed back in time. Returns at once."""
        if self.closing.is_set():
            return
        self.closing.set()
        limit = self.limits.shutdown_timeout_seconds
        if self.end.seconds is not None:
            limit = min(limit, max(SAVE_MARGIN_SECONDS, self.end.seconds))
        logger.info(
            "stopping: %d operations save a checkpoint first", len(self.runtime.slots.all())
        )
        self.runtime.slots.close(gone_in_seconds=limit - SAVE_MARGIN_SECONDS)
        threading.Thread(target=self._watchdog, args=[limit], daemon=True).start()
        threading.Thread(target=self._say_ending, daemon=True).start()

    def _end_in_time(self) -> None:
        """Stop in order, as after SIGTERM, when its time is over or there was no work for long."""
        if not self.closing.is_set() and (reason := self.end.reason()):
            logger.info("ending: %s", reason)
            os.kill(os.getpid(), signal.SIGTERM)

    def leave(self) -> None:
        """After everything is handed back: deregister, and end the forkserver."""
        deadline = time.monotonic() + self.limits.shutdown_timeout_seconds
        while self.runtime.slots.is_in_use and time.monotonic() < deadline:
            time.sleep(0.05)
        if self.runtime.forkserver is not None:
            self.runtime.forkserver.close()
        self.loops.are_stopped.set()
        worker_health.forget(self.runtime.worker_id)
        try:
            registry.deregister(worker_id=self.runtime.worker_id)
        except (DatabaseError, InterfaceError) as error:
            logger.warning("could not deregister: %s", error)
        try:
            nodes.refuse_pending(self.runtime.worker_id)  # no claim promises it any more
        except (DatabaseError, InterfaceError) as error:
            logger.warning("could not refuse the nodes that were not started: %s", error)
        try:
            counters.COUNTERS.flush()
        except (DatabaseError, InterfaceError) as error:
            logger.warning("the last counts are lost: %s", error)
        connection.close()

    def _watchdog(self, seconds: float) -> None:
        """With the broker partitioned Celery never comes to its end; the process must."""
        time.sleep(seconds + WATCHDOG_MARGIN_SECONDS)
        logger.error("still running after %g s: exiting now", seconds + WATCHDOG_MARGIN_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)

    def _say_ending(self) -> None:
        """Have no other worker choose this one for an operation of several nodes any more."""
        try:
            fleet.end_now(worker_id=self.runtime.worker_id)
        except (DatabaseError, InterfaceError) as error:
            logger.warning("could not report the stop: %s", error)
        finally:
            connection.close()

    def _keep_leases(self) -> None:
        """Renew every lease in one UPDATE, and say that this worker is alive."""
        runtime = self.runtime
        self._say_healthy()
        sent_at = now()
        held = {(each.operation_id, each.attempt): each for each in runtime.slots.all()}
        owned = claims.renew(runtime.worker_id, held)
        nodes = gangs.held(runtime.worker_id, [each.node for each in held.values() if each.node])
        for key, each in held.items():
            if key in owned or each.node in nodes or self._got_back(key, each):
                each.renewed_at = sent_at
            else:
                each.is_lost = True
        self._say_alive()
        sweeps.DATABASE_CONTACT.saw_the_database()

    def _say_healthy(self) -> None:
        """Tell the health probe of this machine; before the database, which may be away."""
        runtime, running = self.runtime, self.runtime.slots.all()
        status = Worker.Status.BUSY if running else Worker.Status.AVAILABLE
        if self.closing.is_set() or runtime.slots.is_draining:
            status = Worker.Status.DRAINING
        try:
            worker_health.tell(
                worker_id=runtime.worker_id,
                status=status,
                current_operation=running[0].operation_id if running else "",
                valid_seconds=self.limits.health_check_timeout_seconds,
            )
        except OSError as error:
            logger.warning("cannot write the file for the health probe: %s", error)

    def _got_back(self, key: tuple[str, int], held: RunningAttempt) -> bool:
        """Whether an attempt that was given up is this worker's again (a restored database).

        Not one whose lease was out of sight for long: its supervisor is ending it just now.
        """
        is_fresh = now() - held.renewed_at <= self.limits.fence_kill_seconds
        return is_fresh and held.node is None and reports.take_back(self.runtime.worker_id, key)

    def _say_alive(self) -> None:
        running, trouble = self.runtime.slots.all(), self.loops.trouble
        response = registry.heartbeat(
            worker_id=self.runtime.worker_id,
            num_running=self.runtime.slots.num_taken,
            current_operation_id=running[0].operation_id if running else "",
            last_error=trouble,
            load=self._meter.due(),
        )
        if response is None:
            self._be_registered()
            return
        self.runtime.slots.drain(response.is_draining)
        PACE.num_workers, PACE.num_running = fleet.size()
        self.loops.was_reported(trouble)

    def _be_registered(self) -> None:
        """Register at the start, and again when the row has vanished (a database restored).

        Once for each process, whatever row there is: one that was killed may have left it.
        """
        runtime = self.runtime
        if self._is_refused():
            return
        registry.forget_gone()
        if self.loops.are_stopped.is_set():
            return
        if runtime.is_registered and registry.is_known(worker_id=runtime.worker_id):
            return
        neighbours.recover_ended(actor=runtime.worker_id, wait_seconds=GONE_SECONDS)
        running = runtime.slots.all()
        trouble = self.loops.trouble
        registry.register(
            worker_id=runtime.worker_id,
            worker_type="celery",
            host=runtime.host,
            pid=os.getpid(),
            process=process_identity.identity(),
            kinds=runtime.kinds,
            labels=runtime.labels,
            slots=runtime.slots.count,
            capabilities={
                **capabilities(),
                "clock_skew_seconds": clock_skew.seconds(),
                "signing_key": signing_keys.own_key(),
            },
            is_draining=self.closing.is_set() or runtime.slots.is_draining,
            ends_in_seconds=self.end.seconds,
            idle_exit_seconds=self.end.idle_exit_seconds,
            num_running=runtime.slots.num_taken,
            current_operation_id=running[0].operation_id if running else "",
            last_error=trouble,
        )
        self.loops.was_reported(trouble)
        if not runtime.is_registered:
            runtime.is_registered = True
            self._look_for_work()  # messages that came before went by

    def _is_refused(self) -> bool:
        """Whether a newer version contracted the schema: then save everything and end."""
        try:
            schema.require_known()
        except schema.WrongDatabase as error:
            if not self.closing.is_set():
                logger.error("ending: %s", error)  # noqa: TRY400 - it is expected: no traceback
                os.kill(os.getpid(), signal.SIGTERM)
            return True
        return False

    def _read_stop_requests(self) -> None:
        """Read what is requested of all that runs here in two SELECTs, then look for work."""
        held = {each.operation_id: each for each in self.runtime.slots.all()}
        requests = Operation.objects.filter(pk__in=held).exclude(stop_requested="")
        for operation_id, attempt, stop in requests.values_list("pk", "attempt", "stop_requested"):
            if held[operation_id].attempt == attempt:
                held[operation_id].stop = stop
        leaders = {(each.operation_id, each.attempt): each for each in self.runtime.slots.all()}
        for key, handback in handbacks.requested(leaders).items():
            leaders[key].handback = handback
        self._look_for_work()

    def _look_for_work(self) -> None:
        """Claim what waits, in a thread of its own, if there is room."""
        if self.runtime.can_take_something():
            self._work()

    def _work(self) -> None:
        threading.Thread(target=work_until_idle, args=[self.runtime], daemon=True).start()

    def _look_at_storage(self) -> None:
        """Look, and tell the registry. A storage that does not answer holds up only this thread.

        That of datasets has a thread of its own.
        """
        runtime = self.runtime
        runtime.look_at_storage()
        fleet.report_storage(
            worker_id=runtime.worker_id,
            free_bytes=runtime.disk_bytes or 0,
            storage_problem=runtime.storage_problem,
            dataset_problem=runtime.dataset_look.problem,
        )

    def _clean_up(self) -> None:
        maintenance.clean_up_if_due(actor=self.runtime.worker_id)

    def _sweep(self) -> None:
        maintenance.sweep(actor=self.runtime.worker_id)


WORKER_PROCESS = WorkerProcess()
