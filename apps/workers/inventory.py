"""What this machine has. Asked of the driver (NVML): a worker never loads torch."""

import os
import platform
from functools import cache
from importlib.metadata import version
from typing import Any

import psutil
import pynvml


def visible_devices() -> tuple[str, ...]:
    """Return the GPUs this worker may hand out, as CUDA_VISIBLE_DEVICES names them."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return tuple(name.strip() for name in given.split(",") if name.strip() not in ("", "-1"))
    return tuple(str(index) for index in range(len(_gpus())))


@cache
def capabilities() -> dict[str, Any]:
    """Return what people and the claim want to know of this machine."""
    gpus = _gpus()
    return {
        "gpu": bool(visible_devices()),
        "gpu_type": gpus[0]["name"] if gpus else None,
        "gpus": gpus,
        "cpu_count": os.cpu_count(),
        "ram_bytes": psutil.virtual_memory().total,
        "torch": version("torch"),
        "python": platform.python_version(),
        "os": f"{platform.system()} {platform.release()}",
    }


@cache
def _gpus() -> list[dict[str, Any]]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []  # no driver: no GPU that torch could use
    try:
        driver = pynvml.nvmlSystemGetDriverVersion()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return [
            {
                "name": pynvml.nvmlDeviceGetName(handle),
                "memory_bytes": pynvml.nvmlDeviceGetMemoryInfo(handle).total,
                "driver": driver,
            }
            for handle in handles
        ]
    finally:
        pynvml.nvmlShutdown()
