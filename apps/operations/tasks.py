"""The Celery task behind a wake-up message: a thin door to what a worker does without a broker."""

from apps.operations.attempts.work import work_until_idle
from trainops.celery import app


@app.task(name="trainops.wake")
def wake(operation_id: str) -> int:
    """Look for work. The id says who sent it; what is claimed, the database decides."""
    return work_until_idle()
