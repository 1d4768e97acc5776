"""The random streams as one state dict, and the switches that make sums repeat.

There are the global ones, and the generators that the job which is running keeps for itself.
"""

import os
import platform
import random
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import NotRequired, TypedDict

import numpy as np
import torch

from trainops.runtime import generators, implementation
from trainops.runtime.errors import IncompatibleState
from trainops.runtime.implementation import Implementation
from trainops.runtime.job import StateDict

STREAMS = ("python", "numpy", "torch", "cuda")
OWN = "own"  # generators of the job's, by where they are; not there if it has none
LOGGED = "logged"  # beside the streams: what a step logged before its evaluation began
CPUINFO = Path("/proc/cpuinfo")
# What tells processors apart: of x86, then of ARM.
IDENTITY = (
    "vendor_id", "cpu family", "model", "stepping",
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision",
)  # fmt: skip


class _Job:
    """What the running job is made of, and the generators in it."""

    def __init__(self, objects: Callable[[], Mapping[str, object]]) -> None:
        self.objects = objects
        self.found: dict[str, generators.Generator] = {}

    def look(self) -> None:
        self.found = generators.find(self.objects())


_running = _Job(dict)


def include(objects: Callable[[], Mapping[str, object]]) -> None:
    """Have the generators that can be reached from these objects be part of the state from now on.

    They take the place of those of an earlier call. Raises InputError for one that cannot be saved.
    """
    global _running  # one job runs in a process, as there is one of each stream
    job = _Job(objects)
    job.look()
    generators.require_savable(job.found)
    _running = job


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
    own = {name: generators.state_of(each) for name, each in _running.found.items()}
    numpy = np.random.get_state(legacy=False)
    key = torch.from_numpy(numpy["state"]["key"].astype(np.int64))  # weights_only knows no NumPy
    return {
        "python": random.getstate(),
        "numpy": numpy | {"state": {**numpy["state"], "key": key}},
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
        **({OWN: own} if own else {}),
    }


def load_state_dict(state: StateDict) -> tuple[str, ...]:
    """Put the streams back, and return the names of those that could be.

    CUDA's need the same number of devices; `own_problems` says what of the job's own could not.
    Raises IncompatibleState before anything changes.
    """
    if state.keys() - {OWN, LOGGED} != set(STREAMS):
        raise IncompatibleState(f"random streams {sorted(state)} are not {sorted(STREAMS)}")
    numpy = state["numpy"]
    key = numpy["state"]["key"].numpy().astype(np.uint32)
    random.setstate(state["python"])
    np.random.set_state(numpy | {"state": {**numpy["state"], "key": key}})
    torch.set_rng_state(state["torch"])
    _running.look()  # loading may have made the objects anew
    for name in _running.found.keys() & state.get(OWN, {}).keys():
        generators.put_back(_running.found[name], state[OWN][name])
    if len(state["cuda"]) != (torch.cuda.device_count() if torch.cuda.is_initialized() else 0):
        return STREAMS[:-1]
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])
    return STREAMS


def own_problems(saved: Mapping[str, generators.SavedGenerator]) -> dict[str, str]:
    """Return why each of the job's generators does not stand where it was saved, by its name.

    Those that do have "". `saved` is what the loaded state has of them.
    """
    found = _running.found
    problems = dict.fromkeys(found.keys() - saved.keys(), "the checkpoint does not have it")
    problems |= dict.fromkeys(saved.keys() - found.keys(), "this job does not have it")
    for name in found.keys() & saved.keys():
        own, kept = generators.state_of(found[name])["kind"], saved[name]["kind"]
        problems[name] = "" if own == kept else f"it was a {kept}, and is a {own}"
    return dict(sorted(problems.items()))


def set_determinism(deterministic: bool, threads: int) -> None:
    """Choose algorithms that repeat bit for bit, and the number of threads that sums split into.

    To be called before the first use of CUDA, whose libraries read their settings only then.
    """
    torch.set_num_threads(threads)
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(deterministic)
    torch.backends.cudnn.benchmark = not deterministic


class RunEnvironment(TypedDict):
    """What decides the last bits of a sum."""

    python: str
    numpy: str
    torch: str
    device_type: str
    device_name: str
    threads: int
    cpu_capability: str
    processor: str
    deterministic: bool
    implementation: NotRequired[str]  # only of the plain one


def environment() -> RunEnvironment:
    """Return what decides the last bits of a sum, for the manifest and the receipt.

    The fast implementation has no entry: releases are named by this, and older ones had none.
    """
    on_cuda = torch.cuda.is_initialized()
    found: RunEnvironment = {
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
    if implementation.is_plain():
        found["implementation"] = str(Implementation.PLAIN)
    return found


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
    fields = {name.strip(): value.strip() for name, _, value in pairs}
    identity = " ".join(fields[name] for name in IDENTITY if name in fields)
    return f"{fields.get('model name', platform.machine())}, {identity or 'unknown'}"
