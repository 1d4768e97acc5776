"""Samples of the load of a worker's machine: measured each minute, kept for a day."""

from datetime import timedelta

import psutil
import pytest
from django.utils import timezone

from apps.workers import inventory, load, load_meter, registry
from apps.workers.load import MachineLoad
from apps.workers.models import LoadSample

pytestmark = [pytest.mark.django_db, pytest.mark.database]
LOAD = {
    "cpu_percent": 37.5, "memory_bytes": 12 * 2**30,
    "gpus": [{"id": "GPU-1", "percent": 90.0, "memory_bytes": 2**33}],
}  # fmt: skip


@pytest.fixture
def worker():
    return registry.register(worker_id="w")


def aged(sample, **by):
    LoadSample.objects.filter(pk=sample.pk).update(at=timezone.now() - timedelta(**by))


def test_a_sample_arrives_with_a_heartbeat(worker):
    assert registry.heartbeat(worker_id="w") and not LoadSample.objects.exists()
    registry.heartbeat(worker_id="w", load=MachineLoad(**LOAD))
    (sample,) = load.samples("w")
    assert (sample.cpu_percent, sample.memory_bytes, sample.gpus) == tuple(LOAD.values())
    assert load.latest() == {"w": sample}


def test_a_sample_that_follows_too_soon_is_ignored(worker):
    registry.heartbeat(worker_id="w", load=MachineLoad(**LOAD))
    registry.heartbeat(worker_id="w", load=MachineLoad(**LOAD))
    (sample,) = load.samples("w")
    aged(sample, seconds=31)
    registry.heartbeat(worker_id="w", load=MachineLoad(**LOAD | {"cpu_percent": 1.0}))
    assert [each.cpu_percent for each in load.samples("w")] == [37.5, 1.0]


@pytest.mark.django_db(transaction=True)
def test_an_unknown_worker_has_no_sample():
    assert registry.heartbeat(worker_id="w", load=MachineLoad(**LOAD)) is None
    load.record("w", MachineLoad(**LOAD))
    assert not LoadSample.objects.exists()


def test_samples_are_kept_for_a_day_and_go_with_their_worker(worker):
    for hours in (23, 25):
        load.record("w", MachineLoad(**LOAD))
        aged(LoadSample.objects.latest("pk"), hours=hours)
    assert len(load.samples("w")) == 1 and load.latest() == {}
    assert load.forget_old() == 1
    assert LoadSample.objects.count() == 1
    registry.deregister(worker_id="w")
    assert not LoadSample.objects.exists()


def test_the_machine_is_measured_once_a_minute(monkeypatch):
    seconds = iter([0.0, 59.0, 60.5, 60.5, 100.0])
    monkeypatch.setattr(load_meter, "gpu_loads", lambda: LOAD["gpus"])
    meter = load_meter.LoadMeter(lambda: next(seconds))
    assert meter.due() is None
    found = meter.due()
    assert 0 <= found.cpu_percent <= 100 and found.gpus == LOAD["gpus"]
    assert 0 < found.memory_bytes < psutil.virtual_memory().total
    assert meter.due() is None


def test_gpus_are_read_by_their_driver(monkeypatch):
    gpu = {"id": "GPU-1", "name": "H100", "memory_bytes": 2**36, "driver": "1"}
    assert isinstance(inventory.gpu_loads(), list)
    monkeypatch.setattr(inventory, "_visible_gpus", lambda: [gpu])
    monkeypatch.setattr(inventory.pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(inventory.pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(inventory, "_handle", lambda name: name)

    class Rates:
        gpu, used = 90, 2**33

    monkeypatch.setattr(inventory.pynvml, "nvmlDeviceGetUtilizationRates", lambda _: Rates)
    monkeypatch.setattr(inventory.pynvml, "nvmlDeviceGetMemoryInfo", lambda _: Rates)
    assert inventory.gpu_loads() == LOAD["gpus"]

    def fails(_):
        raise inventory.pynvml.NVMLError(inventory.pynvml.NVML_ERROR_GPU_IS_LOST)

    monkeypatch.setattr(inventory.pynvml, "nvmlDeviceGetMemoryInfo", fails)
    assert inventory.gpu_loads() == []
