"""This machine: disks, limits, GPUs."""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

from django.conf import settings

from apps.workers import inventory
from apps.workers.diagnosis.findings import Diagnosis
from trainops.quantities import size

NUM_FILES = 8192 + 256  # connections of web, and its other files
MAX_TMPDIR_BYTES = 42  # the kernel limits the paths of sockets below it
TORCH_SECONDS = 120
LOOK = "import torch; print(torch.version.cuda or '', torch.cuda.is_available(), sep=',')"


def disk_space() -> Iterator[Diagnosis]:
    reserve = settings.THRESHOLDS.checkpoint_reserve_bytes
    places = {
        "data": settings.DATA_DIR,
        "checkpoints": settings.CHECKPOINT_ROOT,
        "temporary files": Path(tempfile.gettempdir()),
    }
    for name, path in places.items():
        there = next(each for each in (path, *path.parents) if each.exists())
        usage = shutil.disk_usage(there)
        free = f"{size(usage.free)} of {size(usage.total)} are free for {name} ({path})"
        if usage.free < reserve:
            remedy = "Delete what is not needed (trainops checkpoints gc), or add space."
            yield Diagnosis.problem(
                f"only {free}; periodic checkpoints pause below {size(reserve)}", remedy
            )
        elif usage.free < 5 * reserve:
            yield Diagnosis.warning(free, "Add space, or lower checkpoint.keep_last of operations.")
        else:
            yield Diagnosis.ok(free)


def file_limits() -> Iterator[Diagnosis]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < NUM_FILES:
        yield Diagnosis.warning(
            f"a process may open {hard} files; web uses up to {NUM_FILES}",
            f"Raise the hard limit: LimitNOFILE={2 * NUM_FILES} of a unit, or limits.conf.",
        )
    else:
        yield Diagnosis.ok(f"a process may open {'any number of' if hard < 0 else hard} files")


def temporary_files() -> Iterator[Diagnosis]:
    directory = tempfile.gettempdir()
    if len(os.fsencode(directory)) > MAX_TMPDIR_BYTES:
        yield Diagnosis.warning(
            f"TMPDIR is longer than {MAX_TMPDIR_BYTES} bytes: {directory}",
            "Set TMPDIR to a shorter path: attempts cannot have directories of their own below it.",
        )
    elif not os.access(directory, os.W_OK):
        yield Diagnosis.problem(f"{directory} is not writable", "Set TMPDIR to another directory.")
    else:
        yield Diagnosis.ok(directory)


def torch_cuda() -> tuple[str, bool]:
    """Return the CUDA version of torch (empty: a CPU build), and whether it finds a GPU.

    In a process of its own: workers and web never load torch.
    """
    done = subprocess.run(  # noqa: S603 - this program
        [sys.executable, "-c", LOOK],
        capture_output=True, text=True, check=True, timeout=TORCH_SECONDS,
    )  # fmt: skip
    cuda, _, is_available = done.stdout.strip().splitlines()[-1].partition(",")
    return cuda, is_available == "True"


def cuda(torch: Callable[[], tuple[str, bool]] = torch_cuda) -> Iterator[Diagnosis]:
    """Compare the driver's GPUs with what torch can use."""
    gpus = inventory.capabilities()["gpus"]
    if not gpus:
        yield Diagnosis.ok("no GPU on this machine; operations run on the CPU")
        return
    build, is_available = torch()
    names = ", ".join(sorted({gpu["name"] for gpu in gpus}))
    if not build:
        yield Diagnosis.problem(
            f"torch {version('torch')} is a CPU build, but this machine has {len(gpus)} x {names}",
            "Install torch with CUDA, from the index that pytorch.org names for the driver.",
        )
    elif not is_available:
        yield Diagnosis.problem(
            f"torch with CUDA {build} finds no GPU; the driver {gpus[0]['driver']} has {names}",
            "Update the driver, or install a torch for its CUDA; nvidia-smi shows the version.",
        )
    else:
        yield Diagnosis.ok(f"{len(gpus)} x {names}, torch with CUDA {build}")
