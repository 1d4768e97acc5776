import signal
import subprocess
import sys

import pytest

from tests.loop.killed_loading import NUM_WORKERS
from tests.waiting import has_ended, wait_until
from trainops.paths import ROOT


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_processes_that_just_began_end_with_the_killed_one(tmp_path, method):
    """Else they would keep the sockets of a rank open, and the others wait for it."""
    log, begun = tmp_path / "log", tmp_path / "begun"
    begun.mkdir()
    program = [sys.executable, "-m", "tests.loop.killed_loading", begun, method]
    with log.open("wb") as output:
        ran = subprocess.run(program, cwd=ROOT, stdout=output, stderr=output, check=False)
    assert ran.returncode == -signal.SIGKILL, log.read_text()
    pids = [int(each.name) for each in begun.iterdir()]
    assert len(pids) == NUM_WORKERS
    wait_until(lambda: all(map(has_ended, pids)), seconds=30)
