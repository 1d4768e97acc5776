"""Our checkpoints with parts that grow, looked at from outside."""

import math

import pytest
import torch
from typer.testing import CliRunner

from tests.engines.incremental import Run, grown
from trainops.cli.app import build


@pytest.fixture
def two(tmp_path):
    run, state = Run(tmp_path / "op"), grown()
    first = run.save(state)
    state["equity"].append({"equity": torch.tensor([math.nan, 7.0]).double()})
    return first, run.save(state)


def run_command(*words):
    return CliRunner().invoke(build(), ["checkpoints", *map(str, words)])


def test_they_verify_and_a_stream_may_hold_what_is_no_number(two):
    for each in two:
        result = run_command("verify", each.path)
        assert result.exit_code == 0, result.output


def test_a_flipped_byte_of_a_shared_file_is_found_in_both(two):
    with (two[0].path / "best_model.pt").open("r+b") as file:
        file.seek(9000)
        byte = file.read(1)[0]
        file.seek(9000)
        file.write(bytes([byte ^ 1]))
    for each in two:
        result = run_command("verify", each.path)
        assert result.exit_code == 1 and "best_model.pt" in result.output


def test_they_are_shown_by_file(two):
    output = run_command("show", two[1].path).output
    assert "equity-0x1" in output and "equity-tail" in output


def test_what_differs_is_reported_by_column(two):
    result = run_command("diff", two[0].path, two[1].path)
    assert result.exit_code == 1
    assert "equity.equity" in result.output and "(200,)" in result.output
    assert "best_model" not in result.output
