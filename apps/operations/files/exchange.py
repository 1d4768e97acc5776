"""What a process of its own does with checkpoints and other tools' files, and tells us.

It (trainops.files.exchange) needs torch and the recipe's code, which the web process never loads.
"""

import logging
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from apps.checkpoints import remote, signatures, storage
from apps.checkpoints.models import Checkpoint
from apps.ledger import services as ledgers
from apps.operations import inputs
from apps.operations.errors import StorageUnavailable
from apps.operations.ids import is_subtask
from apps.operations.models import Operation
from trainops.concurrency_limit import ConcurrencyLimit, ServerBusy
from trainops.confined.calling import ConfinedProcessFailed, OutOfTime, call
from trainops.confined.limits import Limits
from trainops.errors import DomainError
from trainops.files.checks import CheckJson
from trainops.files.kind_files import Export, files_of, not_supported
from trainops.files.requests import (
    AnyRequest,
    CheckRequest,
    ExchangeAnswer,
    ExchangeRefusal,
    ExportRequest,
    ExportSource,
    Secret,
    TabulateRequest,
)
from trainops.kind import KINDS
from trainops.runtime.checkpoint.manifest import read_manifest
from trainops.runtime.config import OperationConfig
from trainops.runtime.errors import CheckpointCorrupted, ConfigError
from trainops.runtime.ledger import EntryJson

logger = logging.getLogger(__name__)
SECONDS = 600
MEMORY_BYTES, FILE_BYTES = 4 * 2**30, 2**30  # for any request; more for what it reads:
EXPANSION = 12  # bytes for each byte of the checkpoint, the file and the datasets
_limit = ConcurrencyLimit(2)  # more at once would only take each other's memory


def export(
    checkpoint: Checkpoint,
    target: Path,
    *,
    person: str,
    which: str = "last",
    agent: int | None = None,
) -> str:
    """Write a checkpoint as a file of the other tool of its kind. Raises DomainError.

    `which` of a kind whose checkpoints hold both: the last or the best model; `agent` of agents
    with separate networks: whose. Returns what that tool would call it. Its .sha256 is beside it
    where the other tool has one.
    """
    request = export_request(checkpoint, which=which, agent=agent)
    have_here(checkpoint)
    exporting: ExportRequest = {**request, "file": str(target)}
    return ask(exporting, person=person)["name"]


def export_request(checkpoint: Checkpoint, *, which: str, agent: int | None) -> ExportSource:
    """Return all that an exported file follows from. Raises DomainError."""
    operation = checkpoint.operation
    takes_agent = require_export(operation.kind).takes_agent
    if is_subtask(operation.pk):
        raise DomainError(
            "PART_OF_ANOTHER",
            "This is a subtask; export its parent operation instead.",
            {"operation_id": operation.pk},
        )
    return {
        "direction": "export",
        "kind": operation.kind,
        "which": which,
        "agent": agent if takes_agent else None,
        "checkpoint": str(storage.directory(checkpoint.artifacts_path)),
        "digest": checkpoint.manifest_digest,
        "config": operation.config,
        "name": operation.name,
        "entries": _entries(operation),
    }


def _entries(operation: Operation) -> list[EntryJson]:
    """Return the entries of its ledger as JSON. Raises LedgerBroken."""
    if not operation.uses_ledger:
        return []
    return [each.to_json() for each in ledgers.entries_of(operation.pk, operation.ledger_fields)]


def pack(file: Path, name: str, target: Path) -> str:
    """Write a zip with the file under this name and its .sha256, if any; return its name."""
    digest = file.with_name(f"{file.name}.sha256")
    with zipfile.ZipFile(target, "x") as packed:
        packed.write(file, name)
        if digest.exists():
            packed.write(digest, f"{name}.sha256")
    return f"{name}.zip"


def tabulate(checkpoint: Checkpoint, table: str, target: Path, *, person: str) -> None:
    """Write one of the tables that a kind has of its finished operations as CSV.

    Raises DomainError.
    """
    operation = checkpoint.operation
    config = KINDS[operation.kind].parse_config(operation.config)
    have_here(checkpoint)
    request: TabulateRequest = {
        "direction": "tabulate",
        "kind": operation.kind,
        "checkpoint": str(storage.directory(checkpoint.artifacts_path)),
        "digest": checkpoint.manifest_digest,
        "config": operation.config,
        "inputs": inputs.paths(operation.kind, config, models_here(config)),
        "table": table,
        "file": str(target),
    }
    ask(request, person=person)


def load_checks(checkpoint: Checkpoint, *, person: str) -> list[CheckJson]:
    """Return what a process finds that loads the checkpoint into a fresh job of its own config.

    Its bytes must have been verified. Raises StorageUnavailable and ServerBusy.
    """
    have_here(checkpoint)
    operation, path = checkpoint.operation, storage.directory(checkpoint.artifacts_path)
    with answering():
        raw = read_manifest(path, checkpoint.manifest_digest).identity.get("config")
    if raw is None:
        return [_not_loaded("it contains no config (written by an older version)")]
    try:
        config = KINDS[operation.kind].parse_config(raw)
        request: CheckRequest = {
            "direction": "check",
            "kind": operation.kind,
            "config": raw,
            "checkpoint": str(path),
            "inputs": inputs.paths(operation.kind, config, models_here(config)),
            **secret_of(operation),
        }
        return ask(request, person=person)["checks"]
    except ConfigError as error:
        return [_not_loaded(f"its config is not valid here: {error}")]
    except ServerBusy:
        raise
    except DomainError as error:
        return [_not_loaded(error.message)]


def _not_loaded(why: str) -> CheckJson:
    return {"name": "load", "level": "warning", "detail": f"not loaded into a job: {why}"}


def secret_of(operation: Operation) -> Secret:
    """Return what a process needs to read checkpoints in which clients' updates are masked."""
    if not operation.uses_ledger:
        return {}
    return {"secret": ledgers.account_of(operation.pk).secret}


def require_export(kind: str) -> Export:
    """Return how checkpoints of this kind become files of another tool. Raises DomainError."""
    export = files_of(KINDS[kind]).export
    if export is None:
        allowed = [name for name, each in KINDS.items() if files_of(each).export is not None]
        raise DomainError(
            "FORMAT_NOT_SUPPORTED", not_supported(kind), {"given": kind, "allowed": allowed}
        )
    return export


def holds_best(kind: str) -> bool:
    """Whether the newest checkpoint is exported as its last and as its best model."""
    export = files_of(KINDS[kind]).export
    return export is not None and export.has_best


def have_here(checkpoint: Checkpoint) -> None:
    """Download it where it lies in a bucket only. Raises DomainError, also for its signature."""
    with answering():
        signatures.require(checkpoint)
    directory = storage.directory(checkpoint.artifacts_path)
    if (bucket := remote.bucket()) is not None and not directory.exists():
        with answering():
            bucket.download(
                checkpoint.artifacts_path, checkpoint.manifest_digest, threading.Event()
            )


@contextmanager
def answering() -> Iterator[None]:
    """Tell a person what a bucket did not do."""
    try:
        yield
    except CheckpointCorrupted as error:
        raise DomainError("CHECKPOINT_CORRUPTED", str(error), status=409) from error
    except OSError as error:
        raise StorageUnavailable(error) from error


def models_here(config: OperationConfig) -> dict[str, Checkpoint]:
    """Return the models that it uses, by their names, downloaded. Raises DomainError."""
    models = inputs.finals(config.models())
    for each in models.values():
        have_here(each)
        with answering():
            inputs.require_committed(each)
    return models


def ask(request: AnyRequest, *, person: str, wait_seconds: float = 0) -> ExchangeAnswer:
    """Return what a confined process answers; for each person one works at a time.

    Raises DomainError, also where the file breaks the process.
    """
    try:
        with _limit.taken(person, wait_seconds=wait_seconds):
            answer: ExchangeAnswer = call("trainops.files.exchange", request, _limits(request))
    except OutOfTime:
        message = f"Processing the file takes longer than {SECONDS} seconds."
        raise DomainError("UNUSABLE_FILE", message, {"allowed_seconds": SECONDS}) from None
    except ConfinedProcessFailed as error:
        logger.warning("A file could not be exchanged: %s\n%s", error, error.log)
        message = f"The file could not be processed: the importer crashed ({error})."
        raise DomainError("UNUSABLE_FILE", message) from error
    if refused := answer.get("refused"):
        raise DomainError(refused["code"], refused["message"], refused["details"], _status(refused))
    return answer


def _limits(request: Mapping[str, object]) -> Limits:
    """Return the limits for a request, by the sizes of what it reads."""
    inputs = request.get("inputs")
    found = inputs.values() if isinstance(inputs, Mapping) else ()
    paths = [request.get("file"), request.get("checkpoint"), *found]
    size = EXPANSION * sum(_size(Path(path)) for path in paths if isinstance(path, str))
    return Limits(MEMORY_BYTES + size, SECONDS, FILE_BYTES + size)


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(each.lstat().st_size for each in files if each.exists())


def _status(refused: ExchangeRefusal) -> int:
    known = {"STORAGE_ERROR": 507, "CHECKPOINT_CORRUPTED": 409, "EXPORT_NOT_VERIFIED": 500}
    return known.get(refused["code"], 400)
