"""Federated checkpoints of another tool's files, and files of ours."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, cast

from trainops.files.description import Exported, ExportSubject, Imported
from trainops.files.known import expected
from trainops.files.reading import read
from trainops.kinds.federated.config import FederatedConfig
from trainops.kinds.federated.files.exporting import export_federated
from trainops.kinds.federated.files.file import FederatedFile
from trainops.kinds.federated.files.importing import import_federated
from trainops.kinds.federated.releases import Release
from trainops.runtime.job import StateDict


def read_federated(path: Path) -> FederatedFile:
    """Return a federated file. Raises FormatErrors and OSErrors."""
    return expected(read(path), FederatedFile)


def take_in(
    path: Path, config: FederatedConfig, inputs: Mapping[str, Path], secret: bytes
) -> Imported:
    return import_federated(read_federated(path), config, inputs, secret)


def write(state: StateDict, config: FederatedConfig, wanted: ExportSubject) -> Exported:
    file = export_federated(
        state,
        config,
        name=wanted.name,
        saved_at=wanted.saved_at,
        which=cast(Literal["last", "best"], wanted.which),
        spent=[Release.from_entry(each) for each in wanted.entries],
    )
    return Exported(file, f"{wanted.which}.pt")
