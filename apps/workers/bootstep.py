"""Start the worker runtime with Celery's worker, and close it whichever way Celery ends.

Beat is met here, too: it sweeps by itself, as no worker may be left to take its messages.

Three ways lead to the closing, since none covers all: the signal that SIGTERM raises, the stop of
this bootstep (remote shutdown, SIGQUIT, an unrecoverable error), and the watchdog in `runtime`.
SIGUSR1, which batch systems send some time before they end a job, is taken as SIGTERM.
"""

import os
import signal
from typing import Any

from celery import bootsteps, signals
from django.conf import settings

from apps.workers.maintenance import SWEEPER, require_usable_schema
from apps.workers.runtime import WORKER_PROCESS
from trainops.celery import app


class RuntimeStep(bootsteps.StartStopStep):
    requires = frozenset({"celery.worker.components:Pool"})

    def start(self, parent: Any) -> None:
        # Two workers with Celery's default name would share one row in the registry.
        worker_id = parent.hostname.replace("celery@", f"{os.getpid()}@")
        WORKER_PROCESS.open(worker_id=worker_id, serving=settings.SERVING)
        signal.signal(signal.SIGUSR1, _stop_in_order)  # in the place of Celery's dump of stacks

    def close(self, parent: object) -> None:
        WORKER_PROCESS.close()

    def stop(self, parent: object) -> None:
        WORKER_PROCESS.close()
        WORKER_PROCESS.leave()

    def terminate(self, parent: object) -> None:
        WORKER_PROCESS.close()
        WORKER_PROCESS.leave()


def _stop_in_order(*_: object) -> None:
    if not WORKER_PROCESS.closing.is_set():
        os.kill(os.getpid(), signal.SIGTERM)


@signals.celeryd_init.connect
def _require_usable_schema(**_: object) -> None:
    require_usable_schema()


@signals.beat_init.connect
def _sweep_in_beat(**_: object) -> None:
    require_usable_schema()
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # it holds nothing that is to be saved
    SWEEPER.start(actor="beat")


@signals.worker_shutting_down.connect
def _close(**_: object) -> None:
    WORKER_PROCESS.close()


app.steps["worker"].add(RuntimeStep)
