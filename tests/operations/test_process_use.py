"""The points of processor time and memory: when they are due, and what they hold."""

import os
import subprocess
import sys
import time

import pytest

from trainops.process import process_use
from trainops.process.process_use import ProcessUse

HOUR = 3600.0


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def used(monkeypatch):
    """What the processes have used: seconds and bytes."""
    numbers = [0.0, 1000]
    monkeypatch.setattr(process_use, "_used", lambda pid: tuple(numbers))
    return numbers


def values(points):
    ((_, _, found),) = points
    return tuple(found.values())


def test_the_points_hold_the_mean_load_and_the_memory(clock, used):
    use = ProcessUse(1, clock)
    used[:] = [50.0, 900]  # by the fork, and the imports
    assert use.points(3) == []
    clock.now += 4.0
    used[:] = [56.0, 2000]
    points = use.points(4)
    assert [point[0] for point in points] == [4]
    assert list(points[0][2]) == ["system/cpu_percent", "system/memory_bytes"]
    assert values(points) == (150.0, 2000.0)
    clock.now += 2.0
    assert values(use.points(9)) == (0.0, 2000.0)


def test_a_step_has_a_point_once_and_points_are_seconds_apart(clock, used):
    use = ProcessUse(1, clock)
    use.points(0)
    clock.now += 1.9
    assert use.points(5) == []
    clock.now += 0.1
    assert use.points(5) and not use.points(5)
    clock.now += 60.0  # within an evaluation, for example
    assert use.points(5) == []
    assert use.points(6)


def test_thirty_days_have_few_points(clock, used):
    use, num_points = ProcessUse(1, clock), 0
    for step in range(30 * 24 * 60):
        num_points += len(use.points(step))
        clock.now += 60.0
    assert 300 < num_points < 700


def test_a_process_that_has_ended_has_no_points(clock):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for pid in (ended.pid, 0, -1):
        use = ProcessUse(pid, clock)
        use.points(0)
        clock.now += HOUR
        assert use.points(1) == []


def test_seconds_and_bytes_are_those_of_the_process_and_its_descendants():
    seconds, resident = process_use._used(os.getpid())
    busy = time.process_time() + 0.05
    while time.process_time() < busy:
        pass
    program = [sys.executable, "-c", "print('started', flush=True); input()"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        more_seconds, more = process_use._used(os.getpid())
        own = process_use._used(child.pid)[1]
        child.kill()
    assert 0.03 < more_seconds - seconds < 5.0
    assert own > 100_000 and resident > own
    assert more >= process_use.psutil.Process().memory_info().rss * 0.5 + own
