"""The Celery task behind a wake-up message: it calls what a worker calls without a broker, too."""

from typing import Any

from apps.operations.attempts.work import work_until_idle
from apps.operations.scheduling.dispatch import TASK
from trainops.celery import app
from trainops.tracing import HEADER, TRACING


@app.task(name=TASK, bind=True)
def wake(task: Any, operation_id: str) -> int:
    """Look for work. The id says who sent it; what is claimed, the database decides."""
    if parent := task.request.get(HEADER):
        named = {"operation": operation_id}
        with TRACING.span(f"process {TASK}", named, kind="consumer", parent=parent):
            pass  # what it claims may be another operation, with a trace of its own
    return work_until_idle()
