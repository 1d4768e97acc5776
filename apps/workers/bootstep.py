"""Where Celery's worker and the house meet: opened when it is ready, closed whichever way it ends.

Beat is met here, too: it sweeps by itself, as no worker may be left to take its messages.

Three ways lead to the closing, since none covers all: the signal that SIGTERM raises, the stop of
this bootstep (remote shutdown, SIGQUIT, an unrecoverable error), and the watchdog in the house.
SIGUSR1, which batch systems send some time before they end a job, is taken as SIGTERM.
"""

import os
import signal
from typing import Any

from celery import bootsteps, signals
from django.conf import settings

from apps.workers.house import KEEPER
from apps.workers.maintenance import SWEEPER
from trainops.celery import app


class HouseStep(bootsteps.StartStopStep):
    requires = frozenset({"celery.worker.components:Pool"})

    def start(self, parent: Any) -> None:
        # Two workers with Celery's default name would share one row in the registry.
        worker_id = parent.hostname.replace("celery@", f"{os.getpid()}@")
        KEEPER.open(worker_id=worker_id, serving=settings.SERVING)
        signal.signal(signal.SIGUSR1, _stop_in_order)  # in the place of Celery's dump of stacks

    def close(self, parent: Any) -> None:
        KEEPER.close()

    def stop(self, parent: Any) -> None:
        KEEPER.close()
        KEEPER.leave()

    def terminate(self, parent: Any) -> None:
        KEEPER.close()
        KEEPER.leave()


def _stop_in_order(*_: Any) -> None:
    if not KEEPER.closing.is_set():
        os.kill(os.getpid(), signal.SIGTERM)


@signals.beat_init.connect
def _sweep_in_beat(**_: Any) -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # it holds nothing that is to be saved
    SWEEPER.start(actor="beat")


@signals.worker_shutting_down.connect
def _close(**_: Any) -> None:
    KEEPER.close()


app.steps["worker"].add(HouseStep)
