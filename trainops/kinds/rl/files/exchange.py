"""Checkpoints of agents of another tool's files, and files of ours."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from trainops.files.description import Exported, ExportSubject, Imported
from trainops.files.known import expected
from trainops.files.reading import read
from trainops.kinds.rl.config import RlConfig
from trainops.kinds.rl.files.exporting import export_rl
from trainops.kinds.rl.files.file import RlFile
from trainops.kinds.rl.files.importing import import_rl
from trainops.kinds.rl.files.world_spec import WorldSpec, check_world
from trainops.runtime.job import StateDict


def read_rl(path: Path, world: WorldSpec | None = None) -> tuple[RlFile, dict[str, str]]:
    """Return a file of reinforcement learning, and what of its config differs from the world's.

    Raises FormatErrors and OSErrors, in the order of the checks: digest, version, substrate,
    dimensions.
    """
    file: RlFile = expected(read(path), RlFile)
    return file, check_world(file, world or WorldSpec())


def take_in(path: Path, config: RlConfig, inputs: Mapping[str, Path], secret: bytes) -> Imported:
    return import_rl(read_rl(path)[0], config, inputs)


def write(state: StateDict, config: RlConfig, wanted: ExportSubject) -> Exported:
    saved_at = datetime.fromisoformat(wanted.saved_at).timestamp()
    file = export_rl(state, config, saved_at=saved_at, agent=wanted.agent)
    return Exported(file, file.name)
