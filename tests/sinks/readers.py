"""What the other tools read of the files: their own readers, points as (name, step, value)."""

import json
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tests.sinks.wandb_server import serving, sync

HAS_WANDB = find_spec("wandb") is not None
needs_wandb = pytest.mark.skipif(
    not HAS_WANDB, reason="the package of the extra wandb is not installed"
)

MLFLOW = """
import json, sys
from mlflow import MlflowClient

def read(directory):
    client = MlflowClient(directory)
    (experiment,) = [each for each in client.search_experiments() if each.name == "trainops"]
    found = {}
    for run in client.search_runs([experiment.experiment_id]):
        points = [
            (name, each.step, each.value, each.timestamp)
            for name in run.data.metrics
            for each in client.get_metric_history(run.info.run_id, name)
        ]
        found[run.data.tags["trainops.operation_id"]] = {
            "points": points, "params": run.data.params, "tags": run.data.tags,
            "name": run.info.run_name, "status": run.info.status, "start": run.info.start_time,
            "end": run.info.end_time,
        }
    return found

print(json.dumps([read(each) for each in sys.argv[1:]]))
"""


def tensorboard(directory):
    """Return the points in a directory of event files, in order, and the text `operation`."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(directory), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    points = [
        (name, each.step, each.value)
        for name in sorted(events.Tags()["scalars"])
        for each in events.Scalars(name)
    ]
    *_, text = events.Tensors("operation")
    return points, text.tensor_proto.string_val[0].decode()


def mlflow(*directories):
    """Return what MLflow's client finds in file stores: for each a dict by operation."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", MLFLOW, *map(str, directories)],
        env=os.environ | {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def wandb(directory):
    """Return the points that `wandb sync` uploads of a directory of runs, sorted, by operation."""
    with tempfile.TemporaryDirectory() as scratch, serving() as server:
        sync(server, Path(directory), Path(scratch))
    return {
        operation: sorted(
            (name, row["trainops/step"], value)
            for row in run.rows
            for name, value in row.items()
            if name != "trainops/step" and not name.startswith("_")
        )
        for operation, run in server.runs.items()
    }


def single(points):
    """Return points with values in single precision, as TensorBoard's format has them."""
    return [(name, step, float(np.float32(value))) for name, step, value in points]
