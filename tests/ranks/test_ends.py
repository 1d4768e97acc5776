"""However a rank ends, the attempt ends with its last words, and no process is left."""

import os
import re
import signal
import socket
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_until
from trainops.process.protocol import Failed, Succeeded
from trainops.process.rank_process import RankConnection, RankProcess
from trainops.process.rank_protocol import ToRank
from trainops.process.rendezvous import Rendezvous
from trainops.process.wire import Wire
from trainops.runtime.ranks import Devices

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def test_an_exception_of_a_rank_is_that_of_the_attempt(attempts):
    ended = attempts.attempt("raise 1 3")
    assert isinstance(ended, Failed) and ended.code == "JOB_ERROR"
    assert ended.message == "rank 1: ValueError: boom"
    assert "Traceback of rank 1" in ended.traceback and "disturb" in ended.traceback
    assert attempts.committed[-1].type.value == "failure"  # the safe point before it
    assert isinstance(attempts.attempt(), Succeeded)


def test_an_exception_of_rank_0_is_its_own(attempts):
    ended = attempts.attempt("raise 0 3")
    assert isinstance(ended, Failed) and ended.message == "ValueError: boom"


def test_a_rank_that_hangs_is_named(attempts):
    ended = attempts.attempt("freeze 1 3", limits={"stall_timeout_seconds": 4.0})
    assert isinstance(ended, Failed) and ended.code == "STALLED"
    assert ended.message == "rank 1 did not respond within 3.6 s"


def test_a_rank_that_never_wakes_up_is_named_with_its_stack_in_the_log(attempts):
    ended = attempts.attempt("sleep 1 3", limits={"stall_timeout_seconds": 4.0})
    assert isinstance(ended, Failed) and ended.code == "STALLED"
    assert ended.message == "rank 1 did not respond within 3.6 s"
    line = r'^\[rank 1\]   File ".*together_loop\.py", line \d+ in disturb$'
    assert re.search(line, attempts.output, re.MULTILINE)
    assert isinstance(attempts.attempt(), Succeeded)


def test_a_rank_with_other_weights_is_refused_by_name(attempts):
    config = {"every_steps": 1, "every_seconds": 1e9, "self_check": False}
    ended = attempts.attempt("diverge 1 3", checkpoint=config)
    assert isinstance(ended, Failed) and ended.code == "JOB_ERROR"
    assert re.search(r"after step \d+, model differs between rank 0 and rank 1;", ended.message)
    assert all(each.step < 3 for each in attempts.committed)


def test_what_a_rank_prints_is_in_the_log_with_its_number(attempts):
    attempts.attempt("print 1 3")
    assert attempts.output == "[rank 1] hello\n[rank 1] there\n"


@pytest.mark.parametrize("victim", ["rank 0", "rank 1", "group"])
def test_no_process_is_left(victim, attempts):
    seen = []

    def kill(child, report):
        if not seen and report.step:
            processes = psutil.Process(child.pid).children(recursive=True)
            seen.extend([psutil.Process(child.pid), *processes])
            if victim == "group":
                os.killpg(child.pid, signal.SIGKILL)
            else:
                seen[victim == "rank 1"].kill()

    attempts.on_report = kill
    attempts.attempt(processes=3, parameters={"epochs": 50})
    assert len(seen) == 3
    wait_until(lambda: not any(each.is_running() for each in seen))


def test_no_process_is_left_of_an_attempt_that_succeeds(attempts):
    attempts.attempt(processes=3)
    assert not [each for each in psutil.process_iter() if _group(each) == attempts.pid]


def _group(process):
    try:
        return os.getpgid(process.pid)
    except ProcessLookupError:
        return None


class Closable:
    num_closed = 0

    def close(self):
        self.num_closed += 1


def test_a_rank_closes_its_job_when_rank_0_has_ended():
    ours, theirs = socket.socketpair()
    line = RankConnection(Devices(1, 2), Wire(theirs, ToRank), Path("shared"), Rendezvous())
    rank, job = RankProcess(line, None, None), Closable()
    rank._job = job
    ours.close()
    rank.serve()
    assert job.num_closed == 1
    line.wire.close()
