"""The order of a set of texts is the same in the processes of all workers."""

import signal
from contextlib import contextmanager

import pytest

from apps.operations.attempts.children import ForkServer
from tests.ranks.running import Attempts, require_same_end
from tests.waiting import wait_until
from trainops.process.protocol import Succeeded

pytestmark = pytest.mark.slow
CONFIG = {
    "recipe": "forgets_sets",
    "parameters": {"epochs": 200},  # goes on for longer than its end by a kill may take
    "processes": 1,
    "log_every_steps": 1,
    "checkpoint": {"every_steps": 2, "every_seconds": 1e9, "every_epochs": 1000},
}


@contextmanager
def worker():
    forkserver = ForkServer()
    try:
        forkserver.open()
        wait_until(lambda: forkserver.is_ready)
        yield forkserver
    finally:
        forkserver.close()


@pytest.mark.parametrize("hash_seed", ["random", "5"])
def test_a_result_that_depends_on_a_set_is_the_same_after_a_kill_on_another_worker(
    hash_seed, tmp_path, monkeypatch
):
    monkeypatch.setenv("TRAINOPS_RECIPES", "tests.checking.planted:SETS")
    undisturbed = Attempts(None, tmp_path / "undisturbed", CONFIG)
    moved = Attempts(None, tmp_path / "moved", CONFIG)
    with worker() as undisturbed.forkserver:
        assert isinstance(undisturbed.attempt(), Succeeded), undisturbed.output
    monkeypatch.setenv("PYTHONHASHSEED", hash_seed)
    with worker() as moved.forkserver:
        moved.on_report = lambda child, _: moved.committed and child.kill()
        assert moved.attempt() == -signal.SIGKILL, moved.output
        moved.on_report = None
    with worker() as moved.forkserver:
        assert isinstance(moved.attempt(), Succeeded), moved.output
    assert moved.receipts[-1].step > 0
    require_same_end(moved, undisturbed)
