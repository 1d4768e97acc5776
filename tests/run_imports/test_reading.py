"""Runs of other tools, read from the files that these tools wrote."""

import json
import math
import random
import shutil
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from tests.run_imports import writers
from trainops.sinks import foreign_runs, read_wandb
from trainops.sinks.foreign_runs import RunUnreadable, metric_name
from trainops.sinks.reading import runs_below

RECORDED = Path(__file__).parent / "run-abc123.wandb"
LOSS = {step: 1 / (step + 1) for step in range(50)}


def read(root, tool=""):
    return [each.read() for each in runs_below(root, tool)]


def values(run, name):
    return {step: value for step, (value, _) in run.points[name].items()}


def test_event_files_of_tensorboard(tmp_path):
    writers.tensorboard(tmp_path / "runs" / "first")
    (run,) = read(tmp_path / "runs")
    stored = {step: float(np.float32(value)) for step, value in LOSS.items()}
    assert values(run, "loss/train") == stored
    assert values(run, "tensor") == {0: 1.0, 1: 2.0, 2: 3.0}
    assert values(run, "new") == {3: 0.5}
    assert str(values(run, "bad")[7]) == "nan"
    assert run.points.keys() == {"loss/train", "tensor", "new", "bad"}
    assert run.parameters == {"lr": 0.125, "layers": 3, "name": "x", "is_wide": True}
    assert run.name == "first" and not run.all_notes()
    assert run.points["loss/train"][9][1] == writers.BEGAN + 9


def test_a_file_store_of_mlflow(tmp_path):
    run_id = writers.mlflow(tmp_path / "mlruns")
    (run,) = read(tmp_path)
    assert (run.run, run.name, run.status) == (run_id, "clever name", "FINISHED")
    assert values(run, "val/loss") == LOSS
    assert values(run, "unnumbered") == {step: float(step) for step in range(50)}
    assert values(run, "bad") == {1: float("inf")}
    assert run.parameters == {"optimizer/lr": "0.1"}
    described = run.described(["more"])
    assert described["tags"] == ["team:vision", "more"]
    assert described["started_at"] == "2023-11-14T22:13:20+00:00"
    assert described["finished_at"] == "2023-11-14T22:15:00+00:00"
    assert run.all_notes() == ["left out of 1 metrics: negative steps"]


def test_a_recorded_run_of_wandb(tmp_path):
    """Written by wandb 0.31, whose package need not be installed: more than one block."""
    (tmp_path / "offline-run-1").mkdir()
    shutil.copy(RECORDED, tmp_path / "offline-run-1")
    (run,) = read(tmp_path)
    assert (run.run, run.name, run.status) == ("proj/abc123", "my run", "exit code 1")
    assert values(run, "loss") == {step: 1 / (step + 1) for step in range(80)}
    assert values(run, "nested.a") == {step: float(step) for step in range(80)}
    assert str(values(run, "bad")[3]) == "nan" and run.tags == ["t1"]
    assert run.parameters == {"lr": 0.1, "net.depth": 3, "s": "x", "later": 5}
    described = run.described()
    assert described["started_at"] < described["finished_at"]
    whole = RECORDED.read_bytes()
    target = tmp_path / "offline-run-1" / RECORDED.name
    for content, problem in (
        (whole[:20_000], "the file is cut off"),
        (whole[:20_000] + b"xyz" + whole[20_003:], "a record is damaged"),
    ):
        target.write_bytes(content)
        (part,) = read(tmp_path)
        assert 0 < part.num_points < run.num_points
        assert part.all_notes() == [f"{RECORDED.name} is read up to where {problem}"]


@pytest.mark.parametrize("is_flat", [False, True])
def test_images_and_histograms_of_wandb_are_no_metrics(tmp_path, is_flat):
    row = {
        "_step": 3,
        "loss": 0.5,
        "nested": {"a": 1, "image": {"_type": "image-file", "width": 64, "height": 32}},
        "histogram": {"_type": "histogram", "values": [1, 2], "bins": {"low": 0}},
        "histogram_of": 2,
    }
    items = [*foreign_runs.flattened(row)] if is_flat else row.items()
    run = foreign_runs.ForeignRun("wandb", "id", "name", tmp_path)
    read_wandb._history(run, b"".join(map(item_of_history, items)))
    assert {name: values(run, name) for name in run.points} == {
        "loss": {3: 0.5}, "nested.a": {3: 1.0}, "histogram_of": {3: 2.0},
    }  # fmt: skip


def file_of_wandb(path, *rows, config=()):
    """Write a run's file: rows of its history, and a record of its config."""
    history = [field(2, b"".join(map(item_of_history, row.items()))) for row in rows]
    items = [field(1, field(1, name.encode()) + field(16, text.encode())) for name, text in config]
    content = read_wandb.HEADER
    for record in [*history, field(5, b"".join(items))]:
        head = struct.pack("<HB", len(record), read_wandb.FULL)
        content += struct.pack("<I", zlib.crc32(head[2:] + record)) + head + record
    path.parent.mkdir()
    path.write_bytes(content)


@pytest.mark.parametrize("step", [math.nan, math.inf, -math.inf, "NaN", "first", 10**400])
def test_rows_of_wandb_whose_step_is_no_number_are_left_out(tmp_path, step):
    """The whole import was aborted by one of them."""
    place = tmp_path / "b" / "run-b.wandb"
    file_of_wandb(place, {"_step": 1, "loss": 0.5}, {"_step": step, "loss": 9.0, "more": 1.0})
    file_of_wandb(tmp_path / "c" / "run-c.wandb", {"_step": 2.0, "loss": 0.25})
    first, second = read(tmp_path)
    assert values(first, "loss") == {1: 0.5} and values(second, "loss") == {2: 0.25}
    why = "negative steps" if step == 10**400 else "steps that are no numbers"
    assert first.all_notes() == [f"left out of 2 metrics: {why}"]


@pytest.mark.parametrize("time", [math.nan, math.inf, 10**400, -1, "soon"])
def test_rows_of_wandb_whose_time_is_none_have_none(tmp_path, time):
    file_of_wandb(
        tmp_path / "b" / "run-b.wandb",
        {"_step": 1, "loss": 0.5, "_timestamp": 1e9},
        {"_step": 2, "loss": 0.5, "_timestamp": time},
    )
    (run,) = read(tmp_path)
    assert run.points["loss"] == {1: (0.5, 1e9), 2: (0.5, 0.0)} and run.finished_at == 1e9
    json.dumps(run.described(), allow_nan=False)


def test_parameters_that_json_does_not_know_are_text(tmp_path):
    """They aborted the whole import when the run was sent."""
    config = [("a", "NaN"), ("b", "[1, Infinity]"), ("c", '{"value": -Infinity}'), ("d", "0.5")]
    file_of_wandb(tmp_path / "b" / "run-b.wandb", {"_step": 1, "loss": 0.5}, config=config)
    (run,) = read(tmp_path)
    sent = run.described()["parameters"]
    assert sent == {"a": "NaN", "b": "[1, Infinity]", "c": "-Infinity", "d": 0.5}


def item_of_history(item):
    """The protocol buffer of a name and a value."""
    name, value = item
    parts = [(2, part) for part in name.split(".")] + [(16, json.dumps(value))]
    return field(1, b"".join(field(number, text.encode()) for number, text in parts))


def field(number, content):
    """A field of bytes; both varints have two bytes."""
    tag, size = number << 3 | 2, len(content)
    return bytes([tag & 127 | 128, tag >> 7, size & 127 | 128, size >> 7]) + content


@writers.needs_wandb
@pytest.mark.slow
def test_an_offline_run_of_wandb(tmp_path):
    file = writers.wandb(tmp_path)
    (run,) = read(tmp_path)
    assert (run.run, run.name, run.status) == ("proj/abc123", "my run", "exit code 1")
    assert values(run, "loss") == {step: 1 / (step + 1) for step in range(2000)}
    assert values(run, "nested.a") == {step: float(step) for step in range(2000)}
    assert str(values(run, "bad")[3]) == "nan"
    assert run.parameters == {"lr": 0.1, "net.depth": 3}
    assert run.tags == ["t1"] and run.points.keys() == {"loss", "nested.a", "bad"}
    whole = file.read_bytes()
    for size in (len(whole) // 2, 40_000, 3):
        file.write_bytes(whole[:size])
        if size == 3:
            with pytest.raises(RunUnreadable, match="does not begin as a file of Weights"):
                read(tmp_path)
            continue
        (part,) = read(tmp_path)
        assert 0 < part.num_points < run.num_points
        assert f"{file.name} is read up to where the file is cut off" in part.all_notes()
    file.write_bytes(whole[:50_000] + b"x" + whole[50_001:])
    (part,) = read(tmp_path)
    assert f"{file.name} is read up to where a record is damaged" in part.all_notes()


def test_the_tools_are_found_below_one_directory(tmp_path):
    writers.tensorboard(tmp_path / "a" / "b", 1)
    writers.mlflow(tmp_path / "mlruns", 1)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "link").symlink_to(tmp_path / "a")
    assert [each.tool for each in read(tmp_path)] == ["tensorboard", "mlflow"]
    assert [each.tool for each in read(tmp_path, "mlflow")] == ["mlflow"]
    assert [each.name for each in read(tmp_path, "tensorboard")] == ["a/b"]
    with pytest.raises(OSError, match="it is no directory"):
        read(tmp_path / "missing")


def event_file(tmp_path):
    writers.tensorboard(tmp_path)
    return max(tmp_path.iterdir(), key=lambda path: path.stat().st_size)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda whole: whole[:-5], "the file is cut off"),
        (lambda whole: whole[:-3] + b"xyz", "a record is damaged"),
        (lambda whole: whole[:200] + b"\xff" * 20 + whole[220:], "damaged"),
        (lambda whole: b"\xff" * 100, "a length is damaged"),
    ],
)
def test_a_damaged_event_file_is_read_up_to_there(tmp_path, damage, problem):
    path = event_file(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    (run,) = read(tmp_path)
    (note,) = run.all_notes()
    assert note.startswith(f"{path.name} is read up to where") and problem in note


@pytest.mark.slow
def test_no_damage_of_a_file_breaks_the_reader(tmp_path):
    path, rng = event_file(tmp_path), random.Random(1)  # noqa: S311
    whole = path.read_bytes()
    for _ in range(200):
        damaged = bytearray(whole)
        for _ in range(rng.randrange(1, 5)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        path.write_bytes(damaged[: rng.randrange(len(damaged))])
        read(tmp_path)


def test_a_damaged_file_store(tmp_path):
    writers.mlflow(tmp_path)
    (metric,) = tmp_path.rglob("loss")
    lines = metric.read_text().splitlines()
    metric.write_text("\n".join([*lines[:10], "17 x"]))
    (run,) = read(tmp_path)
    assert len(run.points["val/loss"]) == 10
    assert "metric val/loss is read up to line 11, which is damaged" in run.all_notes()
    (meta,) = (path for path in tmp_path.rglob("meta.yaml") if (path.parent / "metrics").exists())
    for text, problem in (
        ("a: [", "meta.yaml cannot be read"),
        ("a: &x [1]\nb: *x", "aliases"),
        ("!!python/object/apply:os.system ['true']", "meta.yaml cannot be read"),
        ("- 1", "meta.yaml has no fields"),
        ("x" * 70_000, "meta.yaml has more than 65536 bytes"),
        ("lifecycle_stage: deleted", "it is deleted in MLflow"),
    ):
        meta.write_text(text)
        with pytest.raises(RunUnreadable, match=problem):
            read(tmp_path)
    meta.write_text(f"status: [3]\nstart_time: {10**400}\nend_time: .inf")
    (run,) = read(tmp_path)
    assert (run.status, run.started_at, run.finished_at) == ("[3]", None, None)


def test_links_in_a_file_store_are_not_followed(tmp_path):
    writers.mlflow(tmp_path / "mlruns", 1)
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (folder,) = tmp_path.rglob("params")
    (folder / "stolen").symlink_to(secret)
    (run,) = read(tmp_path / "mlruns")
    assert "stolen" not in run.parameters


def test_too_many_points_and_metrics(tmp_path, monkeypatch):
    writers.tensorboard(tmp_path)
    monkeypatch.setattr(foreign_runs, "MAX_NAMES", 2)
    (run,) = read(tmp_path)
    assert len(run.points) == 2
    assert run.all_notes() == ["left out of 2 metrics: more than 2 metrics"]
    monkeypatch.setattr(foreign_runs, "MAX_POINTS", 20)
    with pytest.raises(RunUnreadable, match="more than 20 points; nothing is imported"):
        read(tmp_path)


def test_names_of_metrics():
    assert metric_name("val/loss") == "val/loss"
    long, other = metric_name("x" * 100), metric_name("x" * 101)
    assert len(long) == len(other) == 64 and long != other
    assert metric_name("a\nb").startswith("a b-") and metric_name("").startswith("-")


@pytest.mark.parametrize(
    ("num_own", "further", "kept", "num_left_out"),
    [
        (3, ["new"], ["own 0", "own 1", "own 2", "new"], 0),
        (3, ["own 1", "new"], ["own 0", "own 1", "own 2", "new"], 0),
        (16, ["new"], [*(f"own {n}" for n in range(16)), "new"], 0),
        (18, [], [f"own {n}" for n in range(16)], 2),
        (18, ["own 17"], [*(f"own {n}" for n in range(16)), "own 17"], 1),
        (16, list("abcdef"), [*(f"own {n}" for n in range(14)), *"abcdef"], 2),
        (2, list("abcdefghijklmnopqrstuv"), list("abcdefghijklmnopqrst"), 4),
    ],
)
def test_further_tags_have_precedence(tmp_path, num_own, further, kept, num_left_out):
    run = foreign_runs.ForeignRun("wandb", "id", "name", tmp_path)
    run.tags = [f"own {number}" for number in range(num_own)]
    assert run.described(further)["tags"] == kept
    notes = [f"{num_left_out} tags left out"] if num_left_out else []
    assert run.all_notes(further) == notes


def test_a_run_has_the_same_identity_wherever_its_directory_is(tmp_path):
    writers.tensorboard(tmp_path / "runs" / "a", 1)
    (before,) = read(tmp_path / "runs")
    shutil.copytree(tmp_path / "runs" / "a", tmp_path / "elsewhere" / "a")
    (after,) = read(tmp_path / "elsewhere" / "a")
    assert before.run == after.run and before.name == after.name == "a"
