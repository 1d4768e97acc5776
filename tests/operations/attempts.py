"""Attempts of the scripted recipe, run by a runtime in this process."""

import os
import signal
import threading

from django.db import connection

from apps.checkpoints.models import Checkpoint
from apps.operations.attempts import work
from apps.operations.models import Attempt, Media
from apps.operations.requests import services
from tests.waiting import wait_until

PARAMETERS = {
    "at", "step_seconds", "build_seconds", "validation_seconds", "validation_at", "trace", "once",
    "media",
}  # fmt: skip


def submit(what="nothing", *, epochs=2, **given):
    """Submit a scripted operation: `submit("hang", at=3)`; other names are the config's."""
    parameters = {name: given.pop(name) for name in PARAMETERS & set(given)}
    parameters["what"], owner = what, given.pop("owner", None)
    config = {"recipe": "scripted", "parameters": parameters, "epochs": epochs, "batch_size": 16}
    return services.submit(kind="training", config=config | given, owner=owner)


def run(runtime, operation):
    """Run one attempt here and now; return the operation as it is afterwards."""
    work._work_once(runtime)
    return services.get(operation.pk)


def media_of(operation):
    """Return what stands, with its content."""
    fields = ("name", "position", "step", "index", "type", "caption", "content")
    found = Media.objects.filter(operation=operation, retired_by=None).order_by(*fields[:4])
    return [(*values, bytes(content)) for *values, content in found.values_list(*fields)]


class Running:
    """One attempt in a thread, and what the runtime's threads would do to it."""

    def __init__(self, runtime, operation):
        self.runtime, self.operation = runtime, operation
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        try:
            work._work_once(self.runtime)
        finally:
            connection.close()

    @property
    def held(self):
        return self.runtime.slots.all()[0]

    @property
    def pid(self):
        return Attempt.objects.get(operation=self.operation, ended_at=None).pid

    def until_step(self, step):
        wait_until(lambda: services.get(self.operation.pk).step >= step)
        return self

    def until_started(self):
        """Wait until its process has received its start message."""
        wait_until(self.runtime.slots.all)
        wait_until(lambda: Attempt.objects.filter(operation=self.operation, pid__gt=0).exists())
        return self

    def ended(self):
        self.thread.join(30)
        assert not self.thread.is_alive()
        return services.get(self.operation.pk)


def killed_after_its_first_checkpoint(runtime, *, every_steps, **given):
    """Run an attempt that hangs a step later until its checkpoint is committed, then kill it."""
    hanging = submit("hang", at=every_steps + 1, checkpoint={"every_steps": every_steps}, **given)
    running = Running(runtime, hanging)
    wait_until(Checkpoint.objects.filter(operation=running.operation).exists)
    os.kill(running.pid, signal.SIGKILL)
    return running.ended()
