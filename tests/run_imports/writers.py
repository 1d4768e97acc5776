"""Runs as the tools themselves write them."""

import math
import os
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.types_pb2 import DT_DOUBLE, DT_FLOAT, DT_INT64
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

BEGAN = 1_700_000_000.0
needs_wandb = pytest.mark.skipif(
    find_spec("wandb") is None, reason="the package of the extra wandb is not installed"
)


def tensorboard(directory, num_points=50):
    """Write by torch's SummaryWriter, and tensors as TensorFlow 2 writes them."""
    with SummaryWriter(directory) as writer:
        for step in range(num_points):
            writer.add_scalar("loss/train", 1 / (step + 1), step, walltime=BEGAN + step)
        writer.add_scalar("new", 0.5, 3, walltime=BEGAN + 3, new_style=True)
        writer.add_scalar("bad", math.nan, 7, walltime=BEGAN + 7)
        writer.add_histogram("weights", np.array([1.0, 2.0]), 1)
        writer.add_text("note", "no number", 1)
    tensors = [
        TensorProto(dtype=DT_FLOAT, tensor_content=b"\x00\x00\x80\x3f"),
        TensorProto(dtype=DT_DOUBLE, double_val=[2.0]),
        TensorProto(dtype=DT_INT64, int64_val=[3]),
    ]
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="scalars"))
    more = EventFileWriter(str(directory), filename_suffix=".more")
    values = {"lr": 0.125, "layers": 3, "name": "x", "is_wide": True}
    for each in hparams(values, {"loss/train": 0.0}):
        more.add_event(Event(wall_time=BEGAN, summary=each))
    for step, tensor in enumerate(tensors):
        value = Summary.Value(tag="tensor", tensor=tensor, metadata=None if step else metadata)
        more.add_event(Event(wall_time=BEGAN + step, step=step, summary=Summary(value=[value])))
    more.close()


def mlflow(directory, num_points=50):
    """Write by MLflow's FileStore; return the id of the run."""
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    from mlflow.entities import Metric, Param, RunTag
    from mlflow.store.tracking.file_store import FileStore

    store = FileStore(str(directory))
    experiment = store.create_experiment("mine")
    run = store.create_run(experiment, "ana", int(BEGAN * 1000), [], "clever name")
    run_id = run.info.run_id
    for step in range(num_points):
        at = int((BEGAN + step) * 1000)
        store.log_metric(run_id, Metric("val/loss", 1 / (step + 1), at, step))
        store.log_metric(run_id, Metric("unnumbered", float(step), at, 0))
    store.log_metric(run_id, Metric("bad", math.inf, int(BEGAN * 1000), 1))
    store.log_metric(run_id, Metric("bad", 1.0, int(BEGAN * 1000), -5))
    store.log_param(run_id, Param("optimizer/lr", "0.1"))
    store.set_tag(run_id, RunTag("team", "vision"))
    store.update_run_info(run_id, 3, int((BEGAN + 100) * 1000), "clever name")
    return run_id


WANDB = """
import wandb, math, sys
settings = wandb.Settings(console="off", disable_code=True, disable_git=True, silent=True,
    x_disable_meta=True, x_disable_stats=True, x_save_requirements=False)
run = wandb.init(mode="offline", settings=settings, id="abc123", project="proj", name="my run",
    tags=["t1"], config={"lr": 0.1, "net": {"depth": 3}})
for step in range(int(sys.argv[1])):
    run.log({"loss": 1 / (step + 1), "nested": {"a": step}, "text": "hello",
        "bad": math.nan if step == 3 else 1.0})
run.finish(exit_code=1)
"""


def wandb(directory, num_points=2000):
    """Write by wandb itself, offline."""
    directory.mkdir(parents=True, exist_ok=True)
    places = ("HOME", "WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR")
    env = os.environ | dict.fromkeys(places, str(directory))
    env |= {"WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false"}
    command = [sys.executable, "-c", WANDB, str(num_points)]
    subprocess.run(command, check=True, env=env, cwd=directory, capture_output=True)
    (file,) = directory.rglob("*.wandb")
    return file
