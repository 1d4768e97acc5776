"""A worker's runtime inside the test's process: real children, forked from a real forkserver."""

import pytest

from apps.operations.attempts import work
from apps.operations.attempts.children import ForkServer
from apps.operations.scheduling.slots import Slots
from tests.waiting import wait_until


@pytest.fixture(scope="session")
def forkserver():
    forkserver = ForkServer()
    forkserver.open()
    wait_until(lambda: forkserver.is_ready)
    yield forkserver
    left = list(forkserver.temporary_files.directory.iterdir())
    forkserver.close()
    assert left == [], "a test did not close its child"


# No heartbeat renews leases here: on a busy machine an attempt would outlive them.
LEASES = {
    "fence_kill_seconds": 4000, "child_deadline_seconds": 4500, "orphan_timeout_seconds": 6000,
}  # fmt: skip


@pytest.fixture
def runtime(forkserver, settings):
    settings.THRESHOLDS = settings.THRESHOLDS.model_copy(update=LEASES)
    runtime = work.WorkerRuntime()
    runtime.worker_id = "worker-1"
    runtime.slots = Slots(count=1)
    runtime.forkserver = forkserver
    return runtime
