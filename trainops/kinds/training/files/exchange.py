"""Training checkpoints of another tool's files, and files of ours."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from trainops.files.description import Exported, ExportSubject, Imported
from trainops.files.known import expected
from trainops.files.reading import read
from trainops.kinds.training.config import TrainingConfig
from trainops.kinds.training.files import step_directory
from trainops.kinds.training.files.exporting import export_training
from trainops.kinds.training.files.file import TrainingFile
from trainops.kinds.training.files.importing import import_training
from trainops.runtime.job import StateDict


def read_training(path: Path) -> TrainingFile:
    """Return a training file, or what is read as one: a transformer trainer's directory, weights.

    Raises FormatErrors and OSErrors.
    """
    if step_directory.is_one(path):
        return step_directory.read(path)
    return expected(read(path), TrainingFile)


def take_in(
    path: Path, config: TrainingConfig, inputs: Mapping[str, Path], secret: bytes
) -> Imported:
    return import_training(read_training(path), config, inputs)


def write(state: StateDict, config: TrainingConfig, wanted: ExportSubject) -> Exported:
    saved_at = datetime.fromisoformat(wanted.saved_at).timestamp()
    return Exported(export_training(state, config, name=wanted.name, saved_at=saved_at))
