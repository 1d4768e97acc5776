"""The points of an attempt's speed: when they are due, and what they hold."""

import pytest
import torch

from trainops.process import speed
from trainops.runtime.throughput import Throughput


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Job:
    def __init__(self, *numbers):
        self.throughput = Throughput(*numbers)


@pytest.fixture
def clock():
    return Clock()


def values(points):
    ((_, _, found),) = points
    return found


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_the_points_hold_rates_and_shares_since_the_last_ones(clock):
    job = Job(500, 7.0)  # before the attempt's first step: an initial checkpoint, or a way back
    meter = speed.SpeedMeter(job, clock)
    assert meter.points(30) == []
    for step, samples, wait, expected in ((40, 64, 0.5, (32.0, 0.25)), (50, 20, 0.0, (10.0, 0.0))):
        job.throughput.add(samples, wait)
        clock.now += 2.0
        points = meter.points(step)
        assert [point[0] for point in points] == [step]
        assert tuple(values(points).values()) == expected
        assert list(values(points)) == ["system/samples_per_second", "system/data_wait_share"]


def test_where_batches_have_no_known_size_steps_are_counted(clock):
    for job, expected in (
        (Job(None, None), {"system/steps_per_second": 5.0}),
        (Job(0, 0.0), {"system/steps_per_second": 5.0, "system/data_wait_share": 0.5}),
    ):
        meter = speed.SpeedMeter(job, clock)
        meter.points(0)
        job.throughput.add(None, 1.0)
        clock.now += 2.0
        assert values(meter.points(10)) == expected


def test_the_last_step_of_a_short_attempt_has_points_once(clock):
    meter = speed.SpeedMeter(Job(), clock)
    meter.points(0, is_last=True)
    clock.now += 0.01
    assert meter.points(3) == []
    assert meter.points(3, is_last=True)
    clock.now += 60
    assert meter.points(3) == meter.points(3, is_last=True) == []


def test_a_month_of_steps_has_few_points(clock):
    meter, num_points, step = speed.SpeedMeter(Job(), clock), 0, 0
    begun_at = clock.now
    while clock.now < begun_at + 30 * 86_400:
        num_points += len(meter.points(step))
        step += 1
        clock.now += 0.25 if clock.now < begun_at + 3600 else 60
    assert 400 < num_points < 700


def test_the_gpu_is_measured_once_the_process_uses_it(clock, monkeypatch):
    meter = speed.SpeedMeter(Job(), clock)
    meter.points(0)

    def found(step):
        clock.now += 30
        return {name for name in values(meter.points(step)) if "gpu" in name}

    assert found(1) == set()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 2**30)
    monkeypatch.setattr(torch.cuda, "utilization", lambda: 87)
    assert found(2) == {"system/gpu_memory_bytes", "system/gpu_utilization"}

    def refuse():
        raise RuntimeError("not supported for a part of a GPU")

    monkeypatch.setattr(torch.cuda, "utilization", refuse)
    assert found(3) == found(4) == {"system/gpu_memory_bytes"}
