from datetime import timedelta

import pytest
import yaml
from django.utils import timezone

from apps.datasets.models import Dataset
from apps.operations.models import Attempt, Operation
from apps.workers import registry
from apps.workers.models import Worker
from tests.operations.rows import submitted
from trainops.cli.catalogue import allowed
from trainops.client.problems import ExitCode

pytestmark = [pytest.mark.usefixtures("in_process"), pytest.mark.slow]


@pytest.mark.slow
def test_the_recipes_are_listed(cli):
    shown = cli("recipes").stdout
    assert "digits" in shown and "tabular" in shown
    assert {"digits", "tabular"} <= {each["name"] for each in cli("recipes", "-o", "json").json}


@pytest.mark.slow
def test_a_recipe_is_shown_with_its_parameters_and_a_file_to_start_from(cli):
    shown = cli("recipes", "tabular").stdout
    assert "target" in shown and "required" in shown
    assert "kind: training" in shown
    assert cli("recipes", "tabular", "-o", "json").json["json_schema"]["properties"]["target"]


def test_the_file_to_start_from_is_taken_by_run(cli, tmp_path):
    text = cli("recipes", "digits", "--example").stdout
    assert yaml.safe_load(text)["config"]["recipe"] == "digits"
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    assert cli("run", path).exit_code == ExitCode.OK
    assert Operation.objects.get().recipe == "digits"


def test_an_unknown_recipe_is_not_found_and_the_known_are_named(cli):
    ran = cli("recipes", "nothing")
    assert ran.exit_code == ExitCode.NOT_FOUND
    assert "digits" in ran.stderr


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "integer", "minimum": 1, "maximum": 256}, "integer ≥ 1 ≤ 256"),
        ({"type": "number", "exclusiveMinimum": 0}, "number > 0"),
        ({"enum": ["sgd", "adam"]}, "sgd | adam"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "integer or nothing"),
        ({"type": "array", "items": {"type": "string"}}, "list of string"),
        ({"type": "string", "format": "dataset"}, "dataset"),
        ({}, "anything"),
    ],
)
def test_a_schema_is_reported_in_words(schema, text):
    assert allowed(schema) == text


def test_after_an_upload_the_next_command_is_the_one_for_such_a_table(cli, tmp_path):
    prices, table = tmp_path / "prices.csv", tmp_path / "table.csv"
    prices.write_text("Date,Open,High,Low,Close\n2024-01-01,1,2,1,2\n2024-01-02,2,3,2,3\n")
    table.write_text("size,price\n1,2\n2,3\n")
    assert (
        "To use it: python3 -m trainops run examples/backtest.yaml" in cli("upload", prices).stderr
    )
    assert "To use it: python3 -m trainops run examples/tabular.yaml" in cli("upload", table).stderr


def test_an_uploaded_table_gives_its_id_and_what_was_found_in_it(cli, tmp_path):
    path = tmp_path / "wine.csv"
    path.write_text("alcohol,colour\n12.5,red\n13.1,white\n,red\n")
    ran = cli("upload", path, "--name", "Wine")
    dataset = Dataset.objects.get()
    assert ran.exit_code == ExitCode.OK, ran.stderr
    assert ran.stdout == f"{dataset.id}\n"
    assert "Wine: 3 rows, 2 columns" in ran.stderr
    assert "alcohol: number, 1 missing" in ran.stderr
    assert f"--set parameters.dataset={dataset.id}" in ran.stderr
    assert cli("upload", path, "-o", "json").json["id"] == dataset.id  # the same table again


def test_a_table_that_cannot_be_read_is_reported(cli, tmp_path):
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    assert cli("upload", empty).exit_code == ExitCode.USAGE
    gone = cli("upload", tmp_path / "gone.csv")
    assert gone.exit_code == ExitCode.USAGE
    assert "gone.csv: No such file" in gone.stderr
    assert not Dataset.objects.exists()


def test_workers_are_listed_with_what_they_do(cli):
    assert "No worker is registered" in cli("workers").stderr
    Worker.objects.create(worker_id="box:1", kinds=["training"], slots=2, num_running=1)
    shown = cli("workers").stdout
    assert "ENDS" in shown
    assert "box:1" in shown and "BUSY" in shown
    assert cli("workers", "-o", "json").json[0]["slots"] == 2


def test_workers_that_reach_no_storage_are_named_with_the_reason(cli):
    Worker.objects.create(worker_id="box:1", storage_problem="/c is not mounted")
    Worker.objects.create(worker_id="box:2", dataset_problem="/d is not mounted")
    ran = cli("workers")
    assert "STORAGE_AWAY" in ran.stdout
    assert "box:1: checkpoint storage unavailable: /c is not mounted" in ran.stderr
    assert "box:2: dataset storage unavailable: /d is not mounted" in ran.stderr
    rows = cli("workers", "-o", "json").json
    assert rows[0]["storage_problem"] == "/c is not mounted"
    assert rows[1]["dataset_problem"] == "/d is not mounted"


def test_stats_shows_a_row_for_each_kind_and_their_sum(cli, ana):
    submitted(ana)
    registry.register(worker_id="w", kinds=["training"], slots=4)
    shown = cli("stats").stdout
    head, *rows = [line.split() for line in shown.splitlines() if line]
    assert head[:3] == ["KIND", "PENDING", "RUNNING"]
    sums = {row[0]: row[1] for row in rows}
    assert (sums["training"], sums["all"], sums["rl"]) == ("1", "1", "-")
    assert "0 of 4 in use" in shown and "1 AVAILABLE" in shown
    assert cli("stats", "-o", "json").json["workers"]["num_slots"] == 4
    assert cli("stats", "-o", "csv").stdout.startswith("kind,states,num_checkpoints")


def test_usage_shows_a_row_for_each_week_and_project(cli, ana):
    assert "Nothing was computed" in cli("usage").stderr
    operation = submitted(ana)
    operation.row.update(project="=vision")
    started_at = timezone.now() - timedelta(hours=2)
    Attempt.objects.create(
        operation=operation, number=1, worker_id="w", started_at=started_at, device="GPU-a"
    )
    assert "=vision" in cli("usage").stdout
    assert {each["name"] for each in cli("usage", "--by", "owner", "-o", "json").json} == {"ana"}
    head, first, *_ = cli("usage", "-o", "csv").stdout.splitlines()
    assert head == "week,name,num_attempts,compute_hours,gpu_hours"
    assert ",'=vision,1," in first  # no formula for a spreadsheet
