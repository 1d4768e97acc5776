"""Runs of a file store of MLflow: meta.yaml, and a file for each parameter, tag and metric."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainops import plain_yaml
from trainops.sinks.foreign_runs import MAX_TIME, ForeignRun, RunUnreadable, small_text

META = "meta.yaml"
STATUSES = {1: "RUNNING", 2: "SCHEDULED", 3: "FINISHED", 4: "FAILED", 5: "KILLED"}
MAX_FILES = 10_000  # of one folder
MAX_LINE_BYTES = 1000


def is_run(directory: Path) -> bool:
    """Whether the directory is a run of a file store."""
    return (directory / META).is_file() and (directory / "metrics").is_dir()


def read(directory: Path) -> ForeignRun:
    """Return the run of a directory. Raises RunUnreadable, OSError."""
    meta = _meta(directory / META)
    run_id = str(meta.get("run_id") or meta.get("run_uuid") or directory.name)
    if meta.get("lifecycle_stage") == "deleted":
        raise RunUnreadable("it is deleted in MLflow")
    tags = {name: small_text(path) for name, path in _files(directory / "tags")}
    name = str(meta.get("run_name") or tags.get("mlflow.runName") or run_id)
    run = ForeignRun("mlflow", run_id, name, directory)
    status = meta.get("status")
    run.status = STATUSES.get(status if isinstance(status, int) else 0, str(status or ""))
    run.started_at, run.finished_at = _time(meta.get("start_time")), _time(meta.get("end_time"))
    run.tags = [f"{key}:{value}" for key, value in tags.items() if not key.startswith("mlflow.")]
    run.parameters = {name: small_text(path) for name, path in _files(directory / "params")}
    for metric, path in _files(directory / "metrics"):
        _read_metric(run, metric, path)
    return run


def _meta(path: Path) -> dict[str, Any]:
    try:
        meta, _ = plain_yaml.parsed(small_text(path))
    except plain_yaml.UNREADABLE as error:
        raise RunUnreadable(f"{META} cannot be read: {str(error)[:200]}") from None
    if not isinstance(meta, dict):
        raise RunUnreadable(f"{META} has no fields")
    return meta


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files below a folder by their names, which are paths in it; no links."""
    found = 0
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if path.is_symlink() or not path.is_file():
            continue
        found += 1
        if found > MAX_FILES:
            raise RunUnreadable(f"{folder.name} has more than {MAX_FILES} files")
        yield path.relative_to(folder).as_posix(), path


def _read_metric(run: ForeignRun, name: str, path: Path) -> None:
    """Add the points of a metric, whose lines are time, value and step.

    Of one that was logged without steps, which are all 0, the points are numbered.
    """
    rows: list[tuple[int, float, float]] = []
    with path.open("rb") as file:
        while line := file.readline(MAX_LINE_BYTES):
            parts = line.split()
            try:
                at, value = int(parts[0]) / 1000, float(parts[1])
                step = int(parts[2]) if len(parts) > 2 else 0
            except (ValueError, IndexError, OverflowError):
                run.notes.append(
                    f"metric {name} is read up to line {len(rows) + 1}, which is damaged"
                )
                break
            rows.append((step, value, at))
            if len(rows) > 1_000_000:
                break  # one more than a run may have
    is_numbered = len(rows) > 1 and all(step == 0 for step, *_ in rows)
    for number, (step, value, at) in enumerate(rows):
        run.add(name, number if is_numbered else step, value, at)


def _time(milliseconds: object) -> float | None:
    """Return a Unix time; None where it is none, or after the year 9999."""
    if isinstance(milliseconds, int) and 0 < milliseconds <= 1000 * MAX_TIME:
        return milliseconds / 1000
    return None
