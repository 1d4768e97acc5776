"""The Celery tasks that beat schedules."""

from apps.workers import maintenance
from trainops.celery import app


@app.task(name="trainops.sweep")
def sweep() -> None:
    maintenance.sweep(actor="beat")


@app.task(name="trainops.clean_up")
def clean_up() -> None:
    maintenance.clean_up_if_due(actor="beat")
