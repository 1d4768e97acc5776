"""What a confined process does: make checkpoints of another tool's files, or of another
operation's, and files of ours.

It answers with what was made, or with {"refused": {"code", "message", "details"}}. It makes the
job, so it needs torch and the operation's data, which the web process has not. Jobs are made on the
CPU: the machine that serves pages may have no GPU, and a checkpoint is the same for all devices.
"""

import shutil
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from trainops.files import packed
from trainops.files.checks import taken
from trainops.files.description import Exported, ExportSubject, Imported
from trainops.files.errors import FaultyExport, FormatError, UnsupportedFile
from trainops.files.kind_files import Export, files_of, not_supported
from trainops.files.loading import Surroundings
from trainops.files.own import OwnReading, outlines
from trainops.files.requests import (
    CheckRequest,
    ExchangeAnswer,
    ExchangeRequest,
    ExportRequest,
    ForkRequest,
    ImportRequest,
    TabulateRequest,
    WarmStartRequest,
)
from trainops.files.tables import write_csv
from trainops.files.verify import write_verified
from trainops.kind import KINDS
from trainops.lazy import load
from trainops.process.forking import fork
from trainops.process.warm_start import warm_start
from trainops.runtime import reproducibility
from trainops.runtime.checkpoint import staged_json
from trainops.runtime.checkpoint.manifest import (
    MANIFEST,
    STATE,
    Candidate,
    Checkpoint,
    CheckpointType,
    staged,
    verify,
)
from trainops.runtime.checkpoint.store import CheckpointStore
from trainops.runtime.checkpointer import RANDOM
from trainops.runtime.config import OperationConfig
from trainops.runtime.errors import (
    CheckpointCorrupted,
    ConfigError,
    IncompatibleState,
    InputError,
    SaveFailed,
)
from trainops.runtime.job import StateDict, closed_after
from trainops.runtime.ledger import Entry, MemoryLedger
from trainops.runtime.receipt import Receipt, ReceiptItem, compare_environments
from trainops.runtime.subtasks import is_of_subtask

for each in KINDS.values():  # now: the process's limit of memory is for what files take, not code
    files_of(each).import_all()


def answer(request: ExchangeRequest) -> ExchangeAnswer:
    try:
        return DIRECTIONS[request["direction"]](request)
    except FaultyExport as error:
        return _refused("EXPORT_NOT_VERIFIED", f"{error}. The file was removed. This is a fault of "
                        "trainops; please report it.")  # fmt: skip
    except FormatError as error:
        return _refused(error.code, str(error), **error.details)
    except IncompatibleState as error:
        what = "checkpoint" if request["direction"] in ("fork", "warm_start") else "file"
        return _refused(
            f"INCOMPATIBLE_{what.upper()}", f"The {what} does not fit the config: {error}."
        )
    except ConfigError as error:
        return _refused(
            "INVALID_CONFIG", "The config differs from the checkpoint's.", fields=dict(error.errors)
        )
    except InputError as error:
        return _refused("INCOMPATIBLE_FILE", str(error), fields=dict(error.errors))
    except CheckpointCorrupted as error:
        return _refused("CHECKPOINT_CORRUPTED", str(error))
    except (SaveFailed, OSError) as error:
        return _refused("STORAGE_ERROR", str(error))


def take_in(request: ImportRequest) -> ExchangeAnswer:
    """Write the file as a checkpoint below `directory`, not yet committed."""
    config = _config(request)
    reproducibility.set_determinism(config.deterministic, config.threads)
    inputs = {name: Path(path) for name, path in request["inputs"].items()}
    with _unpacked(Path(request["file"])) as file:
        if (file / MANIFEST).is_file():
            _require_no_ledger(request)
            return _take_over(request, file, config, inputs)
        _require_taken_in(request["kind"])
        imported = _imported(request, file, config, inputs)
    store = CheckpointStore(Path(request["directory"]), identity=request["identity"])
    checkpoint = store.write(CheckpointType.PERIODIC, step=imported.step, state=imported.state)
    return {
        "staged": staged_json.to_json(staged(checkpoint)),
        "receipt": imported.receipt.to_json(),
        "entries": [entry.to_json() for entry in imported.entries],
    }


def _require_no_ledger(request: ImportRequest) -> None:
    """Raise UnsupportedFile: a checkpoint of ours brings no ledger; its entries are rows."""
    if KINDS[request["kind"]].uses_ledger(request["config"]):
        raise UnsupportedFile(
            "The ledger of the operation is in the database of the other installation, not in the "
            "checkpoint. Export the operation there as a file of the other tool, which contains "
            "the ledger, and import that file.",
            allowed=["a file of the other tool (checkpoints export)"],
        )


def _require_taken_in(kind: str) -> None:
    """Raise UnsupportedFile for a kind whose operations cannot begin with another tool's file."""
    if not files_of(KINDS[kind]).take_in:
        allowed = [name for name, each in KINDS.items() if files_of(each).take_in]
        raise UnsupportedFile(not_supported(kind), given=kind, allowed=allowed)


def _take_over(
    request: ImportRequest, path: Path, config: OperationConfig, inputs: Mapping[str, Path]
) -> ExchangeAnswer:
    """Write a checkpoint of another installation's operation as one below `directory`.

    It is a fork whose source is not here: what a fork may not change must be as it was. Raises
    IncompatibleState and what fork raises.
    """
    source = verify(path)
    deque(outlines(path), maxlen=0)  # nothing of it is loaded before
    _require_same(source, request["kind"], request["identity"]["inputs"])
    engine = KINDS[request["kind"]]
    before = engine.parse_config(source.identity["config"])
    config.require_forkable(before)
    checkpoint = fork(
        engine,
        source=Candidate(path, source.digest),
        before=before,
        after=config,
        inputs=inputs,
        store=CheckpointStore(Path(request["directory"]), identity=request["identity"]),
        ledger=MemoryLedger(),
    )
    parts = [each.name.removesuffix(".pt") for each in source.artifacts if each.name != STATE]
    items = (
        *map(ReceiptItem, parts),
        *compare_environments(source.environment, checkpoint.environment),
    )
    receipt = Receipt(checkpoint.step, str(source.identity.get("operation_id", path.name)), items)
    return {
        "staged": staged_json.to_json(staged(checkpoint)),
        "receipt": receipt.to_json(),
        "entries": [],
    }


def _require_same(source: Checkpoint, kind: str, inputs: Mapping[str, str]) -> None:
    """Raise IncompatibleState for a checkpoint of another kind, or of data with other digests."""
    identity = source.identity
    if identity.get("kind") != kind:
        raise IncompatibleState(
            f"it is of kind {identity.get('kind')!r}, the operation of {kind!r}"
        )
    if is_of_subtask(identity):
        raise IncompatibleState("it belongs to a subtask; import its parent's checkpoint")
    if "config" not in identity:
        raise IncompatibleState("it contains no config (written by an older version)")
    for name, digest in identity.get("inputs", {}).items():
        here = inputs.get(name, digest)
        if here != digest:
            raise IncompatibleState(f"{name} has a different content here: {here}, not {digest}")


@contextmanager
def _unpacked(file: Path) -> Iterator[Path]:
    """Give the directory that a file packs, until the end; the file itself where it packs none."""
    if not packed.is_one(file):
        yield file
        return
    directory = file.with_name(f"{file.name}.unpacked")
    try:
        packed.unpack(file, directory)
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def give_out(request: ExportRequest) -> ExchangeAnswer:
    """Write a checkpoint as a file of the other tool at `file`."""
    path = Path(request["checkpoint"])
    store = CheckpointStore(path.parent, identity={})
    checkpoint, state = store.restore(Candidate(path, request["digest"]))
    name = _written(request, state, checkpoint.created_at)
    return {"size_bytes": Path(request["file"]).stat().st_size, "name": name}


def _imported(
    request: ImportRequest, file: Path, config: OperationConfig, inputs: Mapping[str, Path]
) -> Imported:
    secret = bytes.fromhex(request.get("secret", ""))
    take = load(files_of(KINDS[request["kind"]]).take_in)
    return cast(Imported, take(file, config, inputs, secret))


def _written(request: ExportRequest, state: StateDict, created_at: str) -> str:
    """Write the file and verify it; return what the other tool would call it."""
    target = Path(request["file"])
    export = cast(Export, files_of(KINDS[request["kind"]]).export)
    wanted = ExportSubject(
        name=request["name"],
        saved_at=created_at,
        which=request["which"],
        agent=request.get("agent"),
        entries=[Entry(**each) for each in request["entries"]],
    )
    exported: Exported = load(export.write)(state, _config(request), wanted)
    write_verified(exported.file, target)
    return exported.name or target.name


def fork_off(request: ForkRequest) -> ExchangeAnswer:
    """Write a checkpoint of one operation as the first one of another, below `directory`."""
    engine = KINDS[request["kind"]]
    checkpoint = fork(
        engine,
        source=Candidate(Path(request["checkpoint"]), request["digest"]),
        before=engine.parse_config(request["config_before"]),
        after=_config(request),
        inputs={name: Path(path) for name, path in request["inputs"].items()},
        store=CheckpointStore(Path(request["directory"]), identity=request["identity"]),
        ledger=MemoryLedger(secret=bytes.fromhex(request.get("secret", ""))),
    )
    return {"staged": staged_json.to_json(staged(checkpoint))}


def start_warm(request: WarmStartRequest) -> ExchangeAnswer:
    """Write the weights of a checkpoint as the first one of another operation."""
    checkpoint, receipt = warm_start(
        KINDS[request["kind"]],
        source=Candidate(Path(request["checkpoint"]), request["digest"]),
        config=_config(request),
        inputs={name: Path(path) for name, path in request["inputs"].items()},
        store=CheckpointStore(Path(request["directory"]), identity=request["identity"]),
        ledger=MemoryLedger(secret=bytes.fromhex(request.get("secret", ""))),
    )
    return {"staged": staged_json.to_json(staged(checkpoint)), "receipt": receipt.to_json()}


def check(request: CheckRequest) -> ExchangeAnswer:
    """Load a checkpoint into a fresh job of its config, and say what was found."""
    secret = request.get("secret")
    around = Surroundings(
        kind=request["kind"],
        config=request["config"],
        inputs={name: Path(path) for name, path in request["inputs"].items()},
        secret=None if secret is None else bytes.fromhex(secret),
    )
    checks = taken(OwnReading(Path(request["checkpoint"]), around).steps)
    return {"checks": [each.to_json() for each in checks]}


def tabulate(request: TabulateRequest) -> ExchangeAnswer:
    """Write a table of an operation's final checkpoint as CSV at `file`."""
    kind, path = KINDS[request["kind"]], Path(request["checkpoint"])
    inputs = {name: Path(each) for name, each in request["inputs"].items()}
    state = CheckpointStore(path.parent, identity={}).load(Candidate(path, request["digest"]))
    with closed_after(kind.make_job(_config(request), inputs)) as job:
        job.load_state_dict({part: each for part, each in state.items() if part != RANDOM})
        table = load(files_of(kind).tables[request["table"]])(job)
        write_csv(table, Path(request["file"]))
    return {"size_bytes": Path(request["file"]).stat().st_size}


DIRECTIONS: Mapping[str, Callable[[Any], ExchangeAnswer]] = {  # each takes its own request
    "import": take_in,
    "export": give_out,
    "fork": fork_off,
    "warm_start": start_warm,
    "tabulate": tabulate,
    "check": check,
}


def _config(request: ExchangeRequest) -> OperationConfig:
    config = KINDS[request["kind"]].parse_config(request["config"])
    return config.model_copy(update={"device": "cpu"}) if hasattr(config, "device") else config


def _refused(code: str, message: str, **details: object) -> ExchangeAnswer:
    return {"refused": {"code": code, "message": message, "details": details}}
