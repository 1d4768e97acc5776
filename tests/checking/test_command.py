"""`recipes check` as a user calls it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_until
from trainops.recipes import recipes

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "trainops", "recipes", "check"]
ENVIRONMENT = os.environ | {
    "TRAINOPS_RECIPES": ",".join(
        f"tests.checking.planted:{name}" for name in ("NOTHING", "COUNTER")
    )
}


def start(*arguments):
    return subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=ROOT,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def check(*arguments):
    process = start(*arguments)
    out, err = process.communicate(timeout=250)
    return process.returncode, out, err


def test_an_exact_recipe_exits_with_0_and_shows_each_run_and_the_cost():
    code, out, err = check("forgets_nothing", "--max-steps", "8")
    assert code == 0, err
    assert "equal    stopped at step 1 (the first step) and resumed" in out
    assert "Exact: every run has the same" in out
    assert "the same calls without the loop of trainops" in out and "x without" in out
    assert "the undisturbed run" in err  # progress
    assert not out.startswith(" ")


@pytest.mark.exhaustive
def test_a_forgotten_state_exits_with_1_as_json_too():
    code, out, err = check("forgets_counter", "--max-steps", "8", "--json", "--no-cost")
    assert code == 1, err
    report = json.loads(out)
    assert not report["exact"] and report["kind"] == "loop"
    assert [each["subject"] for each in report["findings"]] == ["model.seen"]
    assert "register_buffer" in report["findings"][0]["remedy"]
    assert any(not each["equal"] for each in report["runs"])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["no_such"], 3, "recipe: got 'no_such'; there is no such recipe; allowed: "),
        (["forgets_nothing", "--kind", "training"], 2, "kind: got 'training'; allowed"),
        (["forgets_nothing", "--parameters", "epochs=0"], 2, "parameters.epochs: got 0"),
        (["forgets_nothing", "--parameters", "gone.yaml"], 2, "gone.yaml"),
        (["forgets_nothing", "--set", "epochs"], 2, "allowed: PATH=VALUE"),
        (["forgets_nothing", "--input", "ds_1"], 2, "allowed: ID=PATH"),
        (["forgets_nothing", "--parameters", "epochs=1", "--set", "threads=0"], 2, "threads: got"),
        (["tabular"], 2, "inputs: got no file for ds_"),
    ],
)
def test_wrong_arguments_are_named(arguments, code, message):
    found, out, err = check(*arguments)
    assert found == code and not out
    assert message in err


def test_a_file_that_is_no_table_as_trainops_stores_it_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("a,target\n1,2\n")
    name = recipes()["tabular"].example["parameters"]["dataset"]
    code, _, err = check("tabular", "--input", f"{name}={tmp_path / 't.csv'}")
    assert code == 2 and f"t.csv for {name}; allowed: a Parquet file" in err


def test_parameters_come_from_a_file_and_from_the_command_line(tmp_path):
    (tmp_path / "p.yaml").write_text("epochs: 0\n")
    code, _, err = check("forgets_nothing", "--parameters", str(tmp_path / "p.yaml"))
    assert code == 2 and "parameters.epochs: got 0" in err


def test_ctrl_c_ends_every_process():
    process = start("forgets_nothing")
    try:
        wait_until(lambda: len(psutil.Process(process.pid).children(recursive=True)) >= 3)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        wait_until(lambda: not any(map(_runs, children)))
    finally:
        process.kill()
        _, err = process.communicate()
    assert "Traceback" not in err


def _runs(process):
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
