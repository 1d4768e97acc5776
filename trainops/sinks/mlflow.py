"""MLflow: one run for each operation, in a local file store.

The format is that of MLflow's own FileStore: one file for each metric with lines of Unix
milliseconds, value and step, one for each parameter and tag, and meta.yaml. Each file is replaced
by renaming, so that a metric never has a point twice. Nothing of MLflow is needed to write it.
"""

import posixpath
import re
from collections import defaultdict
from collections.abc import Collection
from datetime import datetime
from pathlib import Path, PurePosixPath

import yaml
from blake3 import blake3

from trainops.sinks.details import Details, Pages, SinkPoint, flattened
from trainops.sinks.drafts import drafts, publish

EXPERIMENT_ID, EXPERIMENT = "730148559312046721", "trainops"
STATUSES = {
    "PENDING": 2, "RESUMING": 2, "RUNNING": 1, "COMPLETED": 3, "FAILED": 4, "CANCELLED": 5,
}  # fmt: skip
LOCAL = 4  # source type
MAX_KEY_BYTES, MAX_PARAMETER_CHARS, MAX_TAG_CHARS = 200, 6000, 8000
_VALID = re.compile(r"[/\w.\- :]+")
_META = "meta.yaml"
_FOLDERS = ("metrics", "params", "tags", "artifacts")  # MLflow ignores a run without these


def run_id(operation_id: str) -> str:
    """Return the id of an operation's run: always the same one."""
    return blake3(operation_id.encode()).hexdigest(length=16)


def write(directory: Path, details: Details, pages: Pages) -> None:
    """Write the run of an operation; see `known.write`."""
    directory = directory.resolve()
    run = directory / EXPERIMENT_ID / run_id(details.id)
    for folder in _FOLDERS:
        (run / folder).mkdir(parents=True, exist_ok=True)
    with drafts(run) as scratch:
        metrics = _write_metrics(scratch, pages)
        for key, value in flattened(details.config):
            (scratch / "text").write_text(value[:MAX_PARAMETER_CHARS], encoding="utf-8")
            publish(scratch / "text", run / "params" / file_name(key))
        for key, value in _tags(details).items():
            (scratch / "text").write_text(value[:MAX_TAG_CHARS], encoding="utf-8")
            publish(scratch / "text", run / "tags" / key)
        kept = {run / "metrics" / file_name(name, metrics): name for name in metrics}
        for file in (run / "metrics").rglob("*"):
            if file.is_file() and file not in kept:
                file.unlink()  # its points are retired
        for file, name in kept.items():
            publish(metrics[name], file)
        _write_yaml(scratch, run / _META, _meta(run, details))
        if not (directory / EXPERIMENT_ID / _META).exists():
            _write_yaml(scratch, directory / EXPERIMENT_ID / _META, _experiment(directory, details))


def _write_metrics(scratch: Path, pages: Pages) -> dict[str, Path]:
    """Write the lines of each metric as a draft; return the drafts by name."""
    written: dict[str, Path] = {}
    for page in pages:
        lines: defaultdict[str, list[str]] = defaultdict(list)
        for point in page:
            lines[point.name].append(_line(point))
        for name, new in lines.items():
            draft = written.setdefault(name, scratch / f"metric-{len(written)}")
            with draft.open("a", encoding="ascii") as file:
                file.writelines(new)
    return written


def _line(point: SinkPoint) -> str:
    return f"{_milliseconds(point.at)} {point.value!r} {point.step}\n"


def file_name(name: str, others: Collection[str] = ()) -> str:
    """Return the path of a metric or parameter, which is its name for MLflow.

    Names that MLflow does not allow, and names below the file of another one, have other
    characters replaced, and a digest of the name appended.
    """
    is_valid = _VALID.fullmatch(name) and len(name.encode()) <= MAX_KEY_BYTES
    is_path = posixpath.normpath(name) == name and not name.startswith((".", "/"))
    is_below = any(str(parent) in others for parent in PurePosixPath(name).parents)
    if is_valid and is_path and not is_below:
        return name
    plain = re.sub(r"[^A-Za-z0-9_\- ]", "_", name)[:MAX_KEY_BYTES]
    return f"{plain}-{blake3(name.encode()).hexdigest(length=4)}"


def _tags(details: Details) -> dict[str, str]:
    return {
        "mlflow.runName": details.name,
        "mlflow.user": details.owner,
        "trainops.operation_id": details.id,
        "trainops.kind": details.kind,
        "trainops.state": details.state,
    }


def _meta(run: Path, details: Details) -> dict[str, object]:
    return {
        "artifact_uri": (run / "artifacts").as_uri(),
        "end_time": details.finished_at and _milliseconds(details.finished_at),
        "entry_point_name": "",
        "experiment_id": EXPERIMENT_ID,
        "lifecycle_stage": "active",
        "run_id": run.name,
        "run_name": details.name,
        "run_uuid": run.name,
        "source_name": "",
        "source_type": LOCAL,
        "source_version": "",
        "start_time": _milliseconds(details.started_at),
        "status": STATUSES[details.state],
        "tags": [],
        "user_id": details.owner,
    }


def _experiment(directory: Path, details: Details) -> dict[str, object]:
    created = _milliseconds(details.started_at)
    return {
        "artifact_location": (directory / EXPERIMENT_ID).as_uri(),
        "creation_time": created,
        "experiment_id": EXPERIMENT_ID,
        "last_update_time": created,
        "lifecycle_stage": "active",
        "name": EXPERIMENT,
    }


def _write_yaml(scratch: Path, target: Path, content: dict[str, object]) -> None:
    (scratch / "yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    publish(scratch / "yaml", target)


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
