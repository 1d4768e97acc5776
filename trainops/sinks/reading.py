"""Find the runs of TensorBoard, MLflow and Weights & Biases below a directory, and read them."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trainops.sinks import read_mlflow, read_tensorboard, read_wandb
from trainops.sinks.foreign_runs import ForeignRun

MAX_ENTRIES = 1_000_000  # files and directories that are looked at
TOOLS = ("tensorboard", "mlflow", "wandb")


@dataclass(frozen=True, slots=True)
class FoundRun:
    """Where a run is, and what reads it."""

    tool: str
    path: Path
    read: Callable[[], ForeignRun]


def runs_below(root: Path, tool: str = "") -> Iterator[FoundRun]:
    """Yield the runs of a directory and all below it; links to directories are not followed.

    Raises OSError where the directory cannot be read.
    """
    if not root.is_dir():
        raise NotADirectoryError(20, "it is no directory", str(root))
    num_entries = 0
    for place, directories, files in os.walk(root):
        directories.sort()
        num_entries += len(directories) + len(files)
        if num_entries > MAX_ENTRIES:
            raise OSError(7, f"it has more than {MAX_ENTRIES:,} files", str(root))
        found = _run_in(Path(place), files, root)
        if found is not None and found.tool != "tensorboard":
            directories.clear()  # its artifacts
        if found is not None and tool in ("", found.tool):
            yield found


def _run_in(directory: Path, files: list[str], root: Path) -> FoundRun | None:
    if read_mlflow.is_run(directory):
        return FoundRun("mlflow", directory, partial(read_mlflow.read, directory))
    if logs := sorted(name for name in files if name.endswith(".wandb")):
        return FoundRun("wandb", directory, partial(read_wandb.read, directory / logs[0]))
    if any(read_tensorboard.MARK in name for name in files):
        return FoundRun("tensorboard", directory, partial(read_tensorboard.read, directory, root))
    return None
