"""Commands on checkpoints by path: no server is there, and none is asked."""

import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from tests.cli.conftest import ROOT
from tests.formats.originals import original, save, tree
from trainops.cli.app import build
from trainops.client.problems import ExitCode

pytestmark = pytest.mark.slow


@pytest.fixture
def cli(monkeypatch, tmp_path):
    monkeypatch.setenv("TRAINOPS_URL", "http://127.0.0.1:1")  # nobody answers there
    monkeypatch.chdir(tmp_path)

    def cli(*arguments):
        ran = CliRunner().invoke(build(), [str(each) for each in ("checkpoints", *arguments)])
        if ran.exception and not isinstance(ran.exception, SystemExit):
            raise ran.exception
        return ran

    return cli


def test_verify_shows_a_table_and_exits_with_0(cli, tmp_path):
    ran = cli("verify", original("rl", tmp_path))
    assert ran.exit_code == ExitCode.OK
    rows = [line.split()[:2] for line in ran.stdout.splitlines()]
    assert rows[0] == ["CHECK", "RESULT"] and ["digest", "ok"] in rows
    assert "reinforcement learning, version 3" in ran.stdout


def test_verify_exits_with_1_where_a_check_failed(cli, tmp_path):
    path = original("training", tmp_path)
    path.write_bytes(path.read_bytes()[:-100])
    ran = cli("verify", "training.pt")
    assert ran.exit_code == ExitCode.FAILED
    assert "content  failed" in ran.stdout and "training.pt must not be used" in ran.stderr
    report = json.loads(cli("verify", path, "-o", "json").stdout)
    assert report["passed"] is False
    assert report["checks"][1]["name"] == "content" and "missing" in report["checks"][1]["detail"]


def test_show_is_a_tree(cli, tmp_path):
    ran = cli("show", original("training", tmp_path))
    lines = ran.stdout.splitlines()
    assert lines[0].split() == ["KEY", "TYPE", "SHAPE", "BYTES"]
    assert any(line.startswith("  fc1.weight ") and "20 x 10" in line for line in lines)
    shown = json.loads(cli("show", tmp_path / "training.pt", "-o", "json").stdout)
    assert {
        "depth": 1,
        "key": "fc1.bias",
        "type": "tensor float32",
        "shape": "20",
        "num_bytes": 80,
    } in shown


def test_show_moves_no_cursor_whatever_a_key_is_called(cli, tmp_path):
    ran = cli("show", save({"\x1b[2Jevil\r\nkey": torch.zeros(2)}, tmp_path / "file.pt"))
    assert ran.exit_code == ExitCode.OK
    assert "\x1b" not in ran.stdout and "evil key" in ran.stdout


def test_diff_exits_with_1_where_something_differs(cli, tmp_path):
    one = original("training", tmp_path)
    content = tree("training")
    content["model_state_dict"]["fc1.bias"][3] += 0.25
    other = save(content, tmp_path / "other.pt")
    ran = cli("diff", one, one)
    assert ran.exit_code == ExitCode.OK and "identical" in ran.stderr
    ran = cli("diff", one, other)
    assert ran.exit_code == ExitCode.FAILED
    assert "model_state_dict.fc1.bias" in ran.stdout and "1 of 20 values" in ran.stdout
    assert "0.25" in ran.stdout and "differ in 1 places" in ran.stderr
    (found,) = json.loads(cli("diff", one, other, "-o", "json").stdout)
    assert found["place"] == "model_state_dict.fc1.bias"


def test_weights_are_written_to_o(cli, tmp_path):
    ran = cli("weights", original("training", tmp_path), "-o", tmp_path / "out.safetensors")
    assert ran.exit_code == ExitCode.OK and "last model, 9 tensors" in ran.stdout
    assert (
        load_file(tmp_path / "out.safetensors").keys()
        == tree("training")["model_state_dict"].keys()
    )
    ran = cli("weights", "training.pt", "-o", "again.safetensors", "--output", "json")
    assert json.loads(ran.stdout)["what"] == "last model"
    ran = cli("weights", "training.pt", "-o", "best.safetensors", "--which", "best")
    assert ran.exit_code == ExitCode.FAILED and "holds one model" in ran.stderr
    assert not (tmp_path / "best.safetensors").exists()


@pytest.mark.parametrize("command", ["verify", "show", "diff", "weights"])
def test_a_path_that_leads_nowhere_is_not_found(cli, tmp_path, command):
    extra = {"diff": ["./nowhere.pt"], "weights": ["-o", "out.safetensors"]}.get(command, [])
    ran = cli(command, "./nowhere.pt", *extra)
    assert ran.exit_code == ExitCode.NOT_FOUND and "no such file" in ran.stderr


@pytest.mark.parametrize("command", ["show", "diff", "weights"])
def test_a_file_that_asks_for_more_is_refused_and_named(cli, tmp_path, command):
    class Wish:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "executed"),))

    path = save({"model_state_dict": Wish()}, tmp_path / "file.pt")
    extra = {"diff": [path], "weights": ["-o", "out.safetensors"]}.get(command, [])
    ran = cli(command, path, *extra)
    assert ran.exit_code == ExitCode.FAILED and "the file needs posix.mkdir" in ran.stderr
    assert not (tmp_path / "executed").exists()


def test_a_target_that_cannot_be_written_is_a_problem_and_no_crash(cli, tmp_path):
    ran = cli("weights", original("training", tmp_path), "-o", tmp_path / "no" / "out.safetensors")
    assert ran.exit_code == ExitCode.FAILED and "cannot be written" in ran.stderr


def test_what_is_no_path_needs_the_server(cli):
    ran = cli("verify", "training_20200101_000000_abcdef-a0001")
    assert ran.exit_code == ExitCode.FAILED and "No server at" in ran.stderr


@pytest.mark.slow
def test_commands_that_read_no_file_load_no_torch():
    code = (
        "import sys; from trainops.cli.app import build; build();"
        "sys.exit('torch' in sys.modules or 'trainops.files' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
