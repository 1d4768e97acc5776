"""Where Celery's worker and the house meet: opened when it is ready, closed whichever way it ends.

Beat is met here, too: it sweeps by itself, as no worker may be left to take its messages.

Three ways lead to the closing, since none covers all: the signal that SIGTERM raises, the stop of
this bootstep (remote shutdown, SIGQUIT, an unrecoverable error), and the watchdog in the house.
"""

import os
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

    def close(self, parent: Any) -> None:
        KEEPER.close()

    def stop(self, parent: Any) -> None:
        KEEPER.close()
        KEEPER.leave()

    def terminate(self, parent: Any) -> None:
        KEEPER.close()
        KEEPER.leave()


@signals.beat_init.connect
def _sweep_in_beat(**_: Any) -> None:
    SWEEPER.start(actor="beat")


@signals.worker_shutting_down.connect
def _close(**_: Any) -> None:
    KEEPER.close()


app.steps["worker"].add(HouseStep)
