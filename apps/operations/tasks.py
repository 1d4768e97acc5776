"""The Celery tasks: thin doors to what the house can do without a broker, too."""

import logging

from apps.checkpoints import services as checkpoints
from apps.checkpoints.trying import StorageFailed
from apps.datasets import services as datasets
from apps.operations import clients, studies, sweeps
from apps.operations.work import work_until_idle
from trainops.celery import app

logger = logging.getLogger(__name__)


@app.task(name="trainops.wake")
def wake(operation_id: str) -> int:
    """Look for work. The id says who sent it; what is claimed, the database decides."""
    return work_until_idle()


@app.task(name="trainops.sweep")
def sweep() -> None:
    sweeps.sweep(actor="beat")
    studies.advance_all()
    clients.settle_all()


@app.task(name="trainops.clean_up")
def clean_up() -> None:
    """Remove old checkpoints and files that no row owns."""
    logger.info("clean-up: %d files of datasets", datasets.sweep_files())
    try:
        logger.info("clean-up: %s", checkpoints.clean_up())
    except StorageFailed as error:
        logger.warning("clean-up: the storage did not answer, another time: %s", error)
