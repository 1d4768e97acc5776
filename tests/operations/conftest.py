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


@pytest.fixture
def runtime(forkserver):
    runtime = work.WorkerRuntime()
    runtime.worker_id = "worker-1"
    runtime.slots = Slots(count=1)
    runtime.forkserver = forkserver
    return runtime
