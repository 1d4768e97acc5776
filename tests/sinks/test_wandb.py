"""Offline runs of Weights & Biases: `wandb sync` uploads each point once."""

import math
import signal
import subprocess
import sys
from dataclasses import replace

import psutil
import pytest

from tests.sinks import readers
from tests.sinks.test_files import DETAILS, HOSTILE, START, points
from tests.sinks.wandb_server import serving, sync
from tests.waiting import has_ended, wait_until
from trainops.paths import ROOT
from trainops.sinks import known, wandb
from trainops.sinks.details import SinkPoint

needs_wandb = readers.needs_wandb
BYTES_OF_ROW = 250  # at least, with its summary
FOLDER = f"offline-run-20261125_092000-{DETAILS.id}"


def uploaded(run):
    """Return the points of a run, sorted, as (name, step, value, time)."""
    return sorted(
        (name, row["trainops/step"], value, row["_timestamp"])
        for row in run.rows
        for name, value in row.items()
        if name not in {"trainops/step", "_timestamp", "_step", "_runtime"}
    )


def expected(given):
    return sorted(
        (wandb.metric_name(each.name), each.step, each.value, each.at.timestamp()) for each in given
    )


def files(directory):
    return sorted(str(each.relative_to(directory)) for each in directory.rglob("*"))


@pytest.mark.slow
@needs_wandb
def test_wandb_sync_uploads_the_points_the_config_and_the_state(tmp_path, monkeypatch):
    home, runs = tmp_path / "home", tmp_path / "runs"
    home.mkdir()
    for name, value in {
        "HOME": str(home), "WANDB_PROJECT": "other", "WANDB_MODE": "online", "WANDB_TAGS": "mine",
        "WANDB_API_KEY": "secret", "WANDB_RUN_GROUP": "mine", "WANDB_DIR": str(home),
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    special = [("a", math.inf), ("b", -math.inf), ("c", 0.1 + 0.2), ("d", 5e-324), ("e", 2.0**60)]
    given = points(range(1, 7)) + [SinkPoint(name, 1, value, START) for name, value in special]
    hostile = [SinkPoint(name, 2, 1.0, START) for name in HOSTILE]
    undefined = SinkPoint("undefined", 2**53 + 1, math.nan, START)
    known.write(
        "wandb",
        runs,
        replace(DETAILS, state="FAILED"),
        [given[3:], given[:3], [*hostile, undefined]],
    )
    assert files(tmp_path) == [
        "home",
        "runs",
        f"runs/{FOLDER}",
        f"runs/{FOLDER}/run-{DETAILS.id}.wandb",
    ]
    with serving() as server:
        sync(server, runs, tmp_path / "scratch")
    (run,) = server.runs.values()
    *found, (name, step, value, _) = sorted(uploaded(run), key=lambda each: each[0] == "undefined")
    assert found == expected(given + hostile)
    assert (name, step, math.isnan(value)) == ("undefined", undefined.step, True)
    assert [row["_step"] for row in run.rows] == [*range(len(run.rows))]
    assert {key: run.description[key] for key in ("name", "project", "displayName", "jobType")} == {
        "name": DETAILS.id, "project": "trainops", "displayName": "digits", "jobType": "training",
    }  # fmt: skip
    assert run.description["groupName"] is None
    assert run.description["tags"] == ["owner:ana", "state:FAILED"] and run.exit_code == 1
    metrics = run.config.pop("_wandb")["m"]
    assert run.config == DETAILS.config
    assert {each.get("1") or each.get("2") for each in metrics} == {"trainops/step", "*"}


LONG = """
import sys
from pathlib import Path
from tests.sinks.test_files import DETAILS, points
from trainops.sinks import known

known.write("wandb", Path(sys.argv[1]), DETAILS, [points(range(40_000))])
"""


def killed_while_wandb_writes(directory):
    """Kill a writer in the middle of its second write, and wait until all its processes ended."""
    with subprocess.Popen([sys.executable, "-c", LONG, str(directory)], cwd=ROOT) as writer:
        drafts = f"{FOLDER}/.draft-*/wandb/offline-run-*/*.wandb"
        wait_until(lambda: any(size_of(each) for each in directory.glob(drafts)))
        processes = psutil.Process(writer.pid).children(recursive=True)
        writer.send_signal(signal.SIGKILL)
    assert len(processes) >= 2  # wandb, and its service
    for each in processes:
        wait_until(lambda each=each: has_ended(each))
    (draft,) = directory.glob(drafts)
    assert size_of(draft) < 40_000 * BYTES_OF_ROW / 2  # wandb was killed, too


def size_of(file):
    return file.stat().st_size


@pytest.mark.slow
@needs_wandb
def test_a_sync_after_a_killed_writer_replaces_the_points_of_the_same_run(tmp_path):
    runs, scratch = tmp_path / "runs", tmp_path / "scratch"
    before = points(range(1, 7)) + points([2, 4], "accuracy")
    after = points(range(1, 5)) + points(range(5, 9), value=float)
    with serving() as server:
        known.write("wandb", runs, DETAILS, [before])
        sync(server, runs, scratch)
        assert uploaded(server.runs[DETAILS.id]) == expected(before)
        assert server.runs[DETAILS.id].exit_code == 0
        killed_while_wandb_writes(runs)
        assert "Skipped 1 synced" in sync(server, runs, scratch)
        later = replace(DETAILS, started_at=START.replace(year=2027))
        known.write("wandb", runs, later, [after])
        assert files(runs) == [FOLDER, f"{FOLDER}/run-{DETAILS.id}.wandb"]
        sync(server, runs, scratch)
    assert [*server.runs] == [DETAILS.id]
    assert uploaded(server.runs[DETAILS.id]) == expected(after)


@pytest.mark.slow
@needs_wandb
def test_what_wandb_refuses_is_an_error_that_quotes_it(tmp_path, monkeypatch):
    refused = replace(DETAILS, id="a:b")
    with pytest.raises(OSError, match=r"wandb exited with 1: .*Run ID cannot contain"):
        known.write("wandb", tmp_path, refused, [points([1])])
    monkeypatch.setattr(wandb, "LIMIT_SECONDS", 0.01)
    with pytest.raises(OSError, match=r"wandb takes longer than 0\.01 seconds"):
        known.write("wandb", tmp_path, refused, [points([1])])
    assert not any(each.is_file() for each in tmp_path.rglob("*"))


@pytest.mark.slow
@needs_wandb
def test_the_process_quotes_a_line_that_is_no_message(tmp_path, monkeypatch):
    monkeypatch.setattr(wandb, "encoded", lambda message: b"Row {}\n")
    with pytest.raises(OSError, match="got a message b'Row'; allowed: WandbRun"):
        known.write("wandb", tmp_path, DETAILS, [points([1])])


@pytest.mark.parametrize("name", ["loss", "val/loss", "top-5 acc: x", "a.b", "../x"])
def test_names_that_wandb_keeps_are_kept(name):
    assert wandb.metric_name(name) == name


def test_names_that_wandb_uses_itself_have_a_digest():
    names = ["", "_", "_step", "_timestamp", "trainops/step"]
    found = [wandb.metric_name(name) for name in names]
    assert len(set(found)) == len(names)
    assert [each.rpartition("-")[0] for each in found] == [
        "metric", "metric", "step", "timestamp", "trainops_step",
    ]  # fmt: skip
