"""The global random streams as one state dict, and the switches that make sums repeat."""

import os
import platform
import random
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trainops.engines.errors import IncompatibleState
from trainops.engines.job import StateDict

STREAMS = ("python", "numpy", "torch", "cuda")
CPUINFO = Path("/proc/cpuinfo")
# What tells processors apart: of x86, then of ARM.
IDENTITY = (
    "vendor_id", "cpu family", "model", "stepping",
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision",
)  # fmt: skip


def seed_all(seed: int) -> None:
    """Start every global stream from one seed (0 to 2**63 - 1)."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    # torch.manual_seed would write down a traceback for each kind of device that is not in use.
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)


def state_dict() -> StateDict:
    """Return where every stream stands, as tensors and plain values.

    "cuda" has a tensor for each device once this process has used one, and is empty before.
    """
    numpy = np.random.get_state(legacy=False)
    key = torch.from_numpy(numpy["state"]["key"].astype(np.int64))  # weights_only knows no NumPy
    return {
        "python": random.getstate(),
        "numpy": numpy | {"state": {**numpy["state"], "key": key}},
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
    }


def load_state_dict(state: StateDict) -> tuple[str, ...]:
    """Put the streams back, and return the names of those that could be.

    CUDA's need the same number of devices. Raises IncompatibleState before anything changes.
    """
    if state.keys() != set(STREAMS):
        raise IncompatibleState(f"random streams {sorted(state)} are not {sorted(STREAMS)}")
    numpy = state["numpy"]
    key = numpy["state"]["key"].numpy().astype(np.uint32)
    random.setstate(state["python"])
    np.random.set_state(numpy | {"state": {**numpy["state"], "key": key}})
    torch.set_rng_state(state["torch"])
    if len(state["cuda"]) != (torch.cuda.device_count() if torch.cuda.is_initialized() else 0):
        return STREAMS[:-1]
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])
    return STREAMS


def set_determinism(deterministic: bool, threads: int) -> None:
    """Choose algorithms that repeat bit for bit, and the number of threads that sums split into.

    To be called before the first use of CUDA, whose libraries read their settings only then.
    """
    torch.set_num_threads(threads)
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(deterministic)
    torch.backends.cudnn.benchmark = not deterministic


def environment() -> dict[str, Any]:
    """Return what decides the last bits of a sum, for the manifest and the receipt."""
    on_cuda = torch.cuda.is_initialized()
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "device_type": "cuda" if on_cuda else "cpu",
        "device_name": torch.cuda.get_device_name() if on_cuda else platform.machine(),
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "processor": processor(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


@cache
def processor() -> str:
    """Return the model of the processor.

    Libraries of linear algebra choose by it how they sum: two processors that have the same
    instructions may give other last bits.
    """
    try:
        first, _, _ = CPUINFO.read_text().partition("\n\n")
    except OSError:
        return platform.processor() or platform.machine()
    pairs = (line.partition(":") for line in first.splitlines())
    told = {name.strip(): value.strip() for name, _, value in pairs}
    identity = " ".join(told[name] for name in IDENTITY if name in told)
    return f"{told.get('model name', platform.machine())}, {identity or 'unknown'}"
