"""What a worker finds on its machine. The driver is a fake; the rules about it are not."""

# ruff: noqa: N802 - the names are NVML's

from types import SimpleNamespace
from typing import ClassVar

import pynvml
import pytest

from apps.operations.placement import GB, Device
from apps.workers import inventory


class Driver:
    """NVML with two GPUs, of which the second is split up."""

    NVMLError = pynvml.NVMLError
    memory: ClassVar = {"GPU-1": 24 * GB, "GPU-2": 80 * GB, "MIG-1": 10 * GB}

    def nvmlInit(self):
        pass

    def nvmlShutdown(self):
        pass

    def nvmlSystemGetDriverVersion(self):
        return "550.54"

    def nvmlDeviceGetCount(self):
        return 2

    def nvmlDeviceGetHandleByIndex(self, index):
        if index > 1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return f"GPU-{index + 1}"

    def nvmlDeviceGetHandleByUUID(self, name):
        if name not in self.memory:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return name

    def nvmlDeviceGetUUID(self, handle):
        return handle

    def nvmlDeviceGetName(self, handle):
        return f"name of {handle}"

    def nvmlDeviceGetMemoryInfo(self, handle):
        return SimpleNamespace(total=self.memory[handle])


class NoDriver(Driver):
    def nvmlInit(self):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)


@pytest.fixture(autouse=True)
def _asked_anew():
    forget = (inventory._visible_gpus, inventory.capabilities)
    for each in forget:
        each.cache_clear()
    yield
    for each in forget:
        each.cache_clear()


@pytest.fixture
def driver(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(inventory, "pynvml", Driver())


FIRST, SECOND, PART = Device("GPU-1", 24 * GB), Device("GPU-2", 80 * GB), Device("MIG-1", 10 * GB)


@pytest.mark.parametrize(
    ("visible", "found"),
    [
        (None, (FIRST, SECOND)),
        ("", ()),
        ("-1", ()),
        ("1", (SECOND,)),
        ("1, 0", (SECOND, FIRST)),
        ("GPU-2,MIG-1", (SECOND, PART)),
        ("0,7,1", (FIRST,)),  # as CUDA does it: nothing after what is unknown
    ],
)
def test_gpus_are_known_by_what_no_order_can_change(driver, monkeypatch, visible, found):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert inventory.visible_devices() == found
    offered = inventory.capabilities()
    assert (offered["gpu"], [gpu["id"] for gpu in offered["gpus"]]) == (
        bool(found),
        [device.id for device in found],
    )


def test_without_a_driver_there_is_no_gpu_whatever_the_environment_says(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr(inventory, "pynvml", NoDriver())
    assert inventory.visible_devices() == ()


def test_a_container_has_the_memory_that_it_is_given(monkeypatch, tmp_path):
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(inventory, "MEMORY_LIMIT", limit)
    whole = inventory.memory_bytes()
    for text, expected in (("max\n", whole), (f"{GB}\n", GB), (f"{whole * 2}\n", whole)):
        limit.write_text(text)
        assert inventory.memory_bytes() == expected
