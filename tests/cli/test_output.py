"""Formats of data, and the commands for scripts and shells."""

import csv
import io
import json
import math
import os
import socket
import subprocess
import sys

import pytest
import yaml
from django.utils import timezone

from apps.operations.lifecycle import State
from apps.operations.models import MetricPoint, Operation
from tests.cli.conftest import ROOT
from tests.operations.rows import in_state
from trainops.cli.out import Out, OutputFormat, _at
from trainops.client.problems import ExitCode
from trainops.text import csv_cell


@pytest.fixture
def operation(cli, wish):
    assert cli("run", "-", input=wish.read_text()).exit_code == ExitCode.OK
    return Operation.objects.get()


def test_data_have_four_forms(cli, operation):
    (row,) = cli("ls", "-o", "json").json
    (as_yaml,) = yaml.safe_load(cli("ls", "-o", "yaml").stdout)
    assert as_yaml == row
    (as_csv,) = csv.DictReader(io.StringIO(cli("ls", "-o", "csv").stdout))
    assert as_csv["operation_id"] == operation.pk and set(as_csv) == set(row)
    assert cli("ls", "-q").stdout == f"{operation.pk}\n"


@pytest.mark.parametrize("begin", ["=", "+", "-", "@"])
def test_no_text_of_others_is_a_formula_in_csv(cli, operation, begin):
    Operation.objects.update(name=f"{begin}HYPERLINK(1)", step=7)
    (row,) = csv.DictReader(io.StringIO(cli("ls", "-o", "csv").stdout))
    assert (row["name"], row["step"]) == (f"'{begin}HYPERLINK(1)", "7")


@pytest.mark.parametrize("text", ["-Infinity", "-1.5e-07", "+3", "plain", ""])
def test_numbers_as_text_stay_numbers_in_csv(text):
    assert csv_cell(text) == text


def test_fields_are_chosen(cli, operation):
    fields = ["--fields", "name,config.epochs,config.none"]
    shown = cli("show", operation.pk, *fields, "-o", "json").json
    assert shown == {"name": "A wish", "config.epochs": 2, "config.none": None}
    header, row = cli("show", operation.pk, *fields).stdout.splitlines()
    assert header.split() == ["NAME", "CONFIG.EPOCHS", "CONFIG.NONE"]
    assert row.split() == ["A", "wish", "2", "-"]


def test_a_list_shows_fields_that_only_one_operation_has(cli, operation):
    (shown,) = cli("ls", "--fields", "name,config.epochs", "-o", "json").json
    assert shown == {"name": "A wish", "config.epochs": 2}


def test_a_field_that_does_not_exist_is_named_on_stderr(cli, operation):
    ran = cli("show", operation.pk, "--fields", "name,epochs", "-o", "json")
    assert ran.json == {"name": "A wish", "epochs": None}
    assert "--fields: got 'epochs'; allowed: operation_id, " in ran.stderr
    assert "config.none" not in cli("show", operation.pk, "--fields", "config.none").stderr
    assert not cli("ls", "state:failed", "--fields", "epochs").stderr


@pytest.mark.parametrize(
    ("state", "code"),
    [(State.COMPLETED, 0), (State.FAILED, 1), (State.CANCELLED, 1)],
)
def test_wait_exits_by_the_state(cli, ana, state, code):
    assert cli("wait", in_state(state, owner=ana).pk).exit_code == code


def test_wait_ends_after_its_timeout(cli, operation):
    ran = cli("wait", operation.pk, "--timeout", "0")
    assert ran.exit_code == ExitCode.FAILED and "is still PENDING; it continues" in ran.stderr


@pytest.mark.parametrize(
    ("state", "step", "code"),
    [
        (State.RUNNING, 30, 0), (State.RUNNING, 29, 1), (State.PENDING, 30, 1),
        (State.CANCELLED, 30, 1), (State.COMPLETED, 100, 0),
    ],
)  # fmt: skip
def test_wait_for_progress_ends_when_it_is_reached_by_an_attempt(cli, ana, state, step, code):
    operation = in_state(state, owner=ana)
    operation.row.update(step=step, total_steps=100)
    ran = cli("wait", operation.pk, "--progress", "30", "--timeout", "0")
    assert ran.exit_code == code, ran.stderr


def test_metrics_of_none_are_an_empty_file(cli, operation):
    assert cli("metrics", operation.pk, "--csv").stdout == ""


def test_metrics_that_are_no_numbers_are_shown_and_are_texts_in_json(cli, operation):
    values = ["0.5", "nan", "inf", "-inf"]
    for step, value in enumerate(values):
        MetricPoint.objects.create(
            operation=operation, attempt=1, name="gain", step=step, at=timezone.now(),
            value=None if step else value, not_finite=value if step else "",
        )  # fmt: skip
    shown = cli("metrics", operation.pk)
    assert [line.split()[1] for line in shown.stdout.splitlines()[1:]] == values
    rows = json.loads(cli("metrics", operation.pk, "-o", "json").stdout, parse_constant=pytest.fail)
    assert [row["gain"] for row in rows] == [0.5, *values[1:]]


def test_a_wait_ends_though_the_server_does_not_respond(cli, operation):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        for reference in (operation.pk, operation.pk[-6:]):
            ran = cli("wait", reference, "--timeout", "0.1", "--url", url)
            assert ran.exit_code == ExitCode.FAILED and "did not respond in time" in ran.stderr


def test_quiet_metrics_are_printed_since_steps_have_no_ids(cli, operation):
    measured(operation, "loss")
    assert cli("metrics", operation.pk, "--csv", "-q").stdout == "step,loss\n7,0.5\n"
    assert cli("metrics", operation.pk, "-q").stdout == cli("metrics", operation.pk).stdout != ""


@pytest.mark.parametrize("form", OutputFormat)
def test_data_never_have_numbers_that_json_does_not_have(capsys, form):
    Out(form, fields=["a", "b"]).data([{"a": math.nan, "b": {"c": [math.inf]}}])
    written = capsys.readouterr().out
    assert "NaN" not in written and "Infinity" not in written
    if form is OutputFormat.JSON:
        assert json.loads(written) == [{"a": "nan", "b": {"c": ["inf"]}}]


def test_an_extension_by_a_number_that_json_does_not_have_is_refused(cli):
    ran = cli("studies", "extend", "st_20260101_000000_abcdef", "--seconds", "inf")
    assert ran.exit_code == ExitCode.USAGE
    assert "seconds: got inf; allowed: a finite number" in ran.stderr


def measured(operation, *names):
    for name in names:
        MetricPoint.objects.create(
            operation=operation, attempt=1, name=name, step=7, value=0.5, at=timezone.now()
        )


@pytest.mark.parametrize("form", [["--csv"], ["-o", "csv"]])
def test_fields_of_metrics_are_chosen_in_csv(cli, operation, form):
    measured(operation, "loss", "img.width")
    fields = ["--fields", "step,img.width"]
    assert cli("metrics", operation.pk, *form, *fields).stdout == "step,img.width\n7,0.5\n"


def test_a_metric_named_step_is_not_the_step(cli, operation):
    measured(operation, "step")
    assert cli("metrics", operation.pk, "--csv").stdout == "step,metric.step\n7,0.5\n"


@pytest.mark.parametrize(
    ("path", "value"),
    [("a.b.c", 1), ("a.b", 2), ("d.0.e.f", 3), ("d.1", None), ("a.c", None), ("g", None)],
)
def test_a_path_leads_through_names_with_dots(path, value):
    row = {"a": {"b.c": 1, "b": 2}, "d": [{"e.f": 3}]}
    assert _at(row, path) == value


def test_open_prints_and_opens_the_page(cli, operation, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert cli("open", operation.pk[-6:]).stdout.strip() == opened[0]
    assert opened[0].endswith(f"/operations/{operation.pk}/")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_a_script_and_completions(cli, shell):
    assert "_TRAINOPS_COMPLETE" in cli("completion", shell).stdout
    asked = {
        "_TRAINOPS_COMPLETE": f"complete_{shell}", "COMP_WORDS": "trainops exp", "COMP_CWORD": "1",
        "_TYPER_COMPLETE_ARGS": "trainops exp", "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }  # fmt: skip
    command = [sys.executable, "-m", "trainops"]
    ran = subprocess.run(
        command, env=os.environ | asked, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "export-points" in ran.stdout


def test_a_worker_is_drained_by_an_admin_only(cli, ana):
    assert cli("workers").exit_code == cli("workers", "ls").exit_code == ExitCode.OK
    refused = cli("workers", "drain", "unknown")
    assert (refused.exit_code, refused.stderr[:7]) == (ExitCode.FAILED, "error: ")
    ana.is_superuser = True
    ana.save()
    assert cli("workers", "drain", "unknown").exit_code == ExitCode.NOT_FOUND
