"""The files of the sinks hold each point once, whatever happens to their writer."""

import math
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from tests.sinks import readers
from trainops.paths import ROOT
from trainops.sinks import known, mlflow
from trainops.sinks.details import Details, SinkPoint, SinkPointsChanged

START = datetime(2026, 11, 25, 9, 20, tzinfo=UTC)
DETAILS = Details(
    id="op_training_20261125_092000_1a2b3c", name="digits", kind="training", owner="ana",
    state="COMPLETED", config={"seed": 3, "parameters": {"dropout": 0.5, "head": "linear"}},
    started_at=START, finished_at=START + timedelta(seconds=90),
)  # fmt: skip


def points(steps, name="loss", value=math.sqrt):
    return [SinkPoint(name, step, value(step), START + timedelta(seconds=step)) for step in steps]


def plain(given):
    return [(each.name, each.step, each.value) for each in given]


def test_tensorboard_reads_the_points_and_the_config(tmp_path):
    given = points(range(1, 8)) + points([3, 7], "accuracy")
    known.write("tensorboard", tmp_path, DETAILS, [given[:4], given[4:]])
    found, text = readers.tensorboard(tmp_path / DETAILS.id)
    assert found == readers.single(sorted(plain(given)))
    assert '"dropout": 0.5' in text and '"name": "digits"' in text


def test_tensorboard_reads_the_latest_points_only(tmp_path):
    known.write("tensorboard", tmp_path, DETAILS, [points(range(1, 8))])
    again = points(range(1, 5)) + points(range(5, 9), value=float)
    known.write("tensorboard", tmp_path, DETAILS, [again])
    assert readers.tensorboard(tmp_path / DETAILS.id)[0] == readers.single(plain(again))
    for _ in range(30):
        known.write("tensorboard", tmp_path, DETAILS, [again])
    sizes = sorted(each.stat().st_size for each in (tmp_path / DETAILS.id).iterdir())
    assert len(sizes) == 21 and sizes[-2] == 0 < sizes[-1]


def test_a_tensorboard_that_has_read_the_earlier_file_shows_each_point_once(tmp_path):
    from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / DETAILS.id), size_guidance={"tensors": 0})
    for given in (points(range(1, 8)), points(range(1, 5)) + points(range(5, 9), value=float)):
        for _ in range(2):  # it polls more rarely than files are written
            known.write("tensorboard", tmp_path, DETAILS, [given])
        events.Reload()
        found = [(e.step, e.tensor_proto.float_val[0]) for e in events.Tensors("loss")]
        assert found == [(step, value) for _, step, value in readers.single(plain(given))]


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.sinks.test_files import DETAILS, points
from trainops.sinks import known

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def pages():
    yield points(range(1, 4), value=float)
    if sys.argv[3] == "while it writes":
        die()
    yield points(range(4, 9), value=float)

if sys.argv[3] == "before it empties":
    os.truncate = die
known.write(sys.argv[1], Path(sys.argv[2]), DETAILS, pages())
"""


def killed(sink, directory, moment):
    done = subprocess.run(
        [sys.executable, "-c", KILLED, sink, str(directory), moment],
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["while it writes", "before it empties"])
def test_a_killed_writer_leaves_no_point_twice_in_tensorboard(tmp_path, moment):
    before, after = points(range(1, 7)), points(range(1, 9), value=float)
    known.write("tensorboard", tmp_path, DETAILS, [before])
    killed("tensorboard", tmp_path, moment)
    left = before if moment == "while it writes" else after
    folder = tmp_path / DETAILS.id
    assert readers.tensorboard(folder)[0] == readers.single(plain(left))
    assert sum(each.is_dir() or each.stat().st_size > 0 for each in folder.iterdir()) == 2
    known.write("tensorboard", tmp_path, DETAILS, [after])
    assert readers.tensorboard(folder)[0] == readers.single(plain(after))
    assert sum(each.is_dir() or each.stat().st_size > 0 for each in folder.iterdir()) == 1


HOSTILE = [
    "../../../evil",
    "/etc/x",
    "loss/a",
    "loss/a/b",
    "naïve: 1",
    "a\nb",
    "..",
    "",
    "x//y",
    "é" * 64,
]


@pytest.mark.slow
def test_mlflow_reads_the_points_the_config_and_the_state(tmp_path):
    store = tmp_path / "store"
    old = points(range(1, 9), value=float) + points([1], "gone")
    known.write("mlflow", store, DETAILS, [old])
    killed("mlflow", store, "while it writes")
    special = [("a", math.inf), ("b", -math.inf), ("c", 0.1 + 0.2), ("d", 5e-324), ("e", -0.0)]
    given = points(range(1, 7)) + [SinkPoint(name, 1, value, START) for name, value in special]
    hostile = [SinkPoint(name, 2, 1.0, START) for name in HOSTILE]
    known.write("mlflow", store, DETAILS, [given[:3], given[3:], hostile])
    (found,) = [each[DETAILS.id] for each in readers.mlflow(store)]
    names = {each.name for each in given + hostile}
    expected = [
        [mlflow.file_name(each.name, names), each.step, each.value, each.at.timestamp() * 1000]
        for each in given + hostile
    ]
    assert sorted(found["points"]) == sorted(expected)
    assert len({name for name, *_ in found["points"]}) == len(names)
    assert found["params"] == {
        "seed": "3", "parameters.dropout": "0.5", "parameters.head": "linear",
    }  # fmt: skip
    assert (found["name"], found["status"], found["tags"]["mlflow.user"]) == (
        "digits", "FINISHED", "ana",
    )  # fmt: skip
    assert found["end"] - found["start"] == 90_000
    assert [each.name for each in tmp_path.iterdir()] == ["store"]


@pytest.mark.parametrize("name", ["loss", "val/loss", "top-5 acc: x", "parameters.dropout"])
def test_names_that_mlflow_allows_are_kept(name):
    assert mlflow.file_name(name, {name, "other"}) == name


@pytest.mark.parametrize(
    "sink",
    ["tensorboard", "mlflow", pytest.param("wandb", marks=[pytest.mark.slow, readers.needs_wandb])],
)
def test_points_that_changed_while_they_were_read_are_not_written(tmp_path, sink):
    def changed():
        yield points([1])
        raise SinkPointsChanged(DETAILS.id)

    known.write(sink, tmp_path, DETAILS, [points(range(1, 4))])
    before = {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()}
    with pytest.raises(SinkPointsChanged, match="try again"):
        known.write(sink, tmp_path, DETAILS, changed())
    assert {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()} == before


def test_the_setting_names_sinks(monkeypatch):
    assert known.read({}) == ()
    assert known.read({"TRAINOPS_SINKS": "mlflow, tensorboard,mlflow"}) == ("mlflow", "tensorboard")
    with pytest.raises(
        ValueError, match="TRAINOPS_SINKS: got 'csv'; allowed: tensorboard, mlflow, wandb"
    ):
        known.read({"TRAINOPS_SINKS": "csv"})
    monkeypatch.setattr(known, "find_spec", lambda _: None)
    assert known.read({"TRAINOPS_SINKS": "mlflow"}) == ("mlflow",)
    missing = r"tensorboard is not installed|pip install 'trainops\[tensorboard\]'"
    with pytest.raises(ValueError, match=missing):
        known.read({"TRAINOPS_SINKS": "tensorboard"})


def test_a_directory_with_the_name_of_a_package_is_no_package(tmp_path, monkeypatch):
    (tmp_path / "somewhere_else").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(known.SINKS, "other", known.Sink("other", "somewhere_else", "other"))
    with pytest.raises(
        ValueError, match="needs the package somewhere_else, which is not installed"
    ):
        known.require("other")
