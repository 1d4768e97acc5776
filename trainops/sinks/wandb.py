"""Weights & Biases: one offline run for each operation, which `wandb sync` uploads.

The file of the run is written by wandb itself, in a process of its own (`wandb_process`): wandb
starts a service that lives as long as the process that imported it. The process has its home,
cache and temporary files in the draft, and no variables of this process that wandb reads.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from blake3 import blake3

from trainops.messages import encoded
from trainops.paths import ROOT
from trainops.sinks.details import Details, Pages
from trainops.sinks.drafts import drafts, publish
from trainops.sinks.wandb_messages import WandbRow, WandbRun

PROJECT = "trainops"
STEP = "trainops/step"  # the x-axis; wandb's own steps only count the rows
LIMIT_SECONDS = 540.0  # less than the time after which another process may write
MAX_NAME_CHARS, MAX_TAG_CHARS, MAX_ERROR_CHARS = 128, 64, 300
KEPT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ")
SET = {"WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false"}
PLACES = (
    "HOME", "TMPDIR", "WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR",
    "WANDB_ARTIFACT_DIR",
)  # fmt: skip


def write(directory: Path, details: Details, pages: Pages) -> None:
    """Write the run of an operation; see `known.write`.

    What `wandb sync` noted beside the earlier file is removed: it uploads the new one again.
    """
    run = _folder(directory, details)
    with drafts(run) as scratch:
        with (scratch / "request").open("wb") as file:
            file.write(encoded(_run(details)))
            file.writelines(map(encoded, _rows(pages)))
        _call(scratch)
        (draft,) = scratch.glob("wandb/offline-run-*/*.wandb")
        for note in run.glob("*.wandb.*"):
            note.unlink()
        publish(draft, run / f"run-{details.id}.wandb")


def _folder(directory: Path, details: Details) -> Path:
    """Return the directory of the run, by the name that wandb gives to one of that start."""
    for earlier in directory.glob(f"offline-run-*-{details.id}"):
        return earlier
    return directory / f"offline-run-{details.started_at:%Y%m%d_%H%M%S}-{details.id}"


def _run(details: Details) -> WandbRun:
    tags = [f"owner:{details.owner}"] if details.owner else []
    return WandbRun(
        parent=os.getpid(),
        id=details.id,
        project=PROJECT,
        name=details.name[:MAX_NAME_CHARS],
        job_type=details.kind,
        tags=tuple(tag[:MAX_TAG_CHARS] for tag in (*tags, f"state:{details.state}")),
        config=dict(details.config),
        step=STEP,
        exit_code=int(details.state == "FAILED"),
    )


def _rows(pages: Pages) -> Iterator[WandbRow]:
    """Yield the rows of the history: the points of a page that have the same step are one."""
    step_of = attrgetter("step")
    for page in pages:
        for step, points in groupby(sorted(page, key=step_of), step_of):
            values: dict[str, float] = {}
            for point in points:
                values[metric_name(point.name)] = point.value
                values["_timestamp"] = point.at.timestamp()
            yield WandbRow(step, values)


def metric_name(name: str) -> str:
    """Return the name of a metric in wandb.

    Names that wandb discards or uses itself have a digest of the name appended.
    """
    if name and not name.startswith("_") and name != STEP:
        return name
    plain = re.sub(r"[^A-Za-z0-9]", "_", name).strip("_") or "metric"
    return f"{plain}-{blake3(name.encode()).hexdigest(length=4)}"


def _call(scratch: Path) -> None:
    """Have `wandb_process` write the run. Raises OSError with the last line of its output."""
    log = scratch / "log"
    with (scratch / "request").open("rb") as request, log.open("wb") as output:
        try:
            done = subprocess.run(
                [sys.executable, "-m", "trainops.sinks.wandb_process"],
                stdin=request,
                stdout=output,
                stderr=output,
                cwd=ROOT,
                env=_environment(os.environ, scratch.resolve()),
                timeout=LIMIT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"wandb takes longer than {LIMIT_SECONDS:g} seconds") from None
    if done.returncode:
        last = log.read_text(errors="replace").strip().rpartition("\n")[2]
        raise OSError(f"wandb exited with {done.returncode}: {last[:MAX_ERROR_CHARS]}")


def _environment(own: Mapping[str, str], scratch: Path) -> dict[str, str]:
    kept = {name: own[name] for name in KEPT if name in own}
    return kept | SET | dict.fromkeys(PLACES, str(scratch))
