"""What this machine has. Asked of the driver (NVML): a worker never loads torch."""

import logging
import os
import platform
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

import psutil
import pynvml

from apps.operations.placement import Device
from apps.workers.rows import Capabilities, Gpu, GpuLoad
from trainops.version import VERSION

logger = logging.getLogger(__name__)
MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of a container; "max" where there is none


def visible_devices() -> tuple[Device, ...]:
    """Return the GPUs that this worker may hand out, by their UUIDs.

    CUDA_VISIBLE_DEVICES narrows them down; a number there is the one that nvidia-smi shows.
    """
    return tuple(Device(gpu["id"], gpu["memory_bytes"]) for gpu in _visible_gpus())


def memory_bytes() -> int:
    """Return the machine's memory, or the container's where it is given less."""
    total: int = psutil.virtual_memory().total
    with suppress(OSError, ValueError):
        return min(total, int(MEMORY_LIMIT.read_text()))
    return total


@cache
def capabilities() -> Capabilities:
    """Return what people and the placement of operations want to know of this machine."""
    gpus = _visible_gpus()
    return {
        "gpu": bool(gpus),
        "gpu_type": gpus[0]["name"] if gpus else None,
        "gpus": gpus,
        "cpu_count": os.cpu_count(),
        "ram_bytes": memory_bytes(),
        "trainops": VERSION,
        "torch": version("torch"),
        "python": platform.python_version(),
        "os": f"{platform.system()} {platform.release()}",
    }


@cache
def _visible_gpus() -> list[Gpu]:
    with _nvml() as is_there:
        if not is_there:
            return []  # no driver: no GPU that torch could use
        driver = pynvml.nvmlSystemGetDriverVersion()
        return [
            {
                "id": pynvml.nvmlDeviceGetUUID(handle),
                "name": pynvml.nvmlDeviceGetName(handle),
                "memory_bytes": pynvml.nvmlDeviceGetMemoryInfo(handle).total,
                "driver": driver,
            }
            for handle in _handles(os.environ.get("CUDA_VISIBLE_DEVICES"))
        ]


def gpu_loads() -> list[GpuLoad]:
    """Return what the visible GPUs are used for; those that cannot be read are left out."""
    found: list[GpuLoad] = []
    for gpu in _visible_gpus():  # without any, the driver is not asked
        with _nvml() as is_there, suppress(pynvml.NVMLError):
            if is_there:
                handle = _handle(gpu["id"])
                percent = float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
                used = int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)
                found.append({"id": gpu["id"], "percent": percent, "memory_bytes": used})
    return found


@contextmanager
def _nvml() -> Iterator[bool]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield False
        return
    try:
        yield True
    finally:
        pynvml.nvmlShutdown()


def _handles(visible: str | None) -> Iterable[object]:
    """Yield what is visible; as CUDA does it, nothing from the first name on that is unknown."""
    names: Iterable[object] = range(pynvml.nvmlDeviceGetCount())
    if visible is not None:
        names = filter(None, map(str.strip, visible.split(",")))
    for name in names:
        try:
            yield _handle(str(name))
        except pynvml.NVMLError as error:
            logger.warning(
                "CUDA_VISIBLE_DEVICES is %r; there is no GPU %s: %s", visible, name, error
            )
            return


def _handle(name: str) -> object:
    if name.isdigit():
        return pynvml.nvmlDeviceGetHandleByIndex(int(name))
    return pynvml.nvmlDeviceGetHandleByUUID(name)
