"""`import-runs`: each run becomes one finished operation, with what it had there."""

import io
import json
from datetime import UTC, datetime, timedelta

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone
from rest_framework.test import APIClient

from apps.operations.errors import CheckpointNotFound, NotAllowed
from apps.operations.models import Event, MetricPoint, Operation, PackedPoints, Tag
from apps.operations.requests import forking, run_imports, services
from apps.operations.requests.submission import submit
from apps.operations.search.conditions import condition
from tests.run_imports import writers
from trainops.client.problems import ExitCode
from trainops.kind import KINDS
from trainops.runtime.errors import ConfigError

pytestmark = pytest.mark.django_db(transaction=True)
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def imported(cli, *arguments):
    ran = cli("import-runs", *arguments, "-o", "json")
    return json.loads(ran.stdout), ran


def test_runs_become_finished_operations_with_their_curves(cli, tmp_path, client, ana):
    writers.tensorboard(tmp_path / "runs" / "first")
    run_id = writers.mlflow(tmp_path / "mlruns")
    rows, ran = imported(cli, tmp_path, "--tag", "old")
    assert ran.exit_code == 0, ran.output
    assert [each["status"] for each in rows] == ["imported", "imported"]
    by_tool = {each.config["tool"]: each for each in Operation.objects.all()}
    run = by_tool["mlflow"]
    assert (run.state, run.name, run.owner.username) == ("COMPLETED", "clever name", "ana")
    assert run.config_given == {
        "tool": "mlflow", "run": run_id, "tool_status": "FINISHED",
        "parameters": {"optimizer/lr": 0.1},
    }  # fmt: skip
    assert (run.finished_at - run.started_at).total_seconds() == 100
    assert (run.step, run.total_steps, run.result) == (49, 49, {"points": 101, "metrics": 3})
    assert run.metrics["val/loss"] == 1 / 50 and run.metrics["bad"] == "inf"
    assert run.extremes["val/loss"] == [1 / 50, 1.0]
    assert set(Tag.objects.filter(operation=run).values_list("name", flat=True)) == {
        "team:vision", "old",
    }  # fmt: skip
    curve = MetricPoint.objects.filter(operation=run, name="val/loss").order_by("step")
    assert list(curve.values_list("value", flat=True)) == [1 / (step + 1) for step in range(50)]
    event = Event.objects.get(operation=run)
    assert (event.what, event.actor) == ("IMPORTED", "ana")
    assert not run.attempts.exists() and not run.checkpoints.exists()


def test_pages_and_api_show_it(cli, tmp_path, client, ana):
    writers.tensorboard(tmp_path / "runs" / "first")
    writers.tensorboard(tmp_path / "runs" / "second", 30)
    rows, _ = imported(cli, tmp_path)
    one, two = (each["id"] for each in rows)
    client.force_login(ana)
    page = client.get(f"/operations/{one}/").content.decode()
    assert "Imported run" in page and "first" in page
    for action in ("resume", "fork", "extend"):
        assert f"{one}/{action}" not in page, action
    assert "first" in client.get("/operations/").content.decode()
    assert client.get(f"/compare/?ids={one},{two}").status_code == 200
    api = APIClient()
    api.force_authenticate(ana)
    curves = api.get(f"/api/v1/operations/{one}/metrics").json()["data"]
    assert "loss/train" in {each["name"] for each in curves["series"]}
    shown = api.get(f"/api/v1/operations/{one}").json()["data"]
    assert shown["allowed_actions"] == ["delete"], shown["allowed_actions"]
    compared = api.get("/api/v1/operations/compare", {"ids": f"{one},{two}"})
    assert compared.status_code == 200, compared.json()
    found = api.get("/api/v1/operations", {"q": "parameters.lr=0.125"})
    assert found.status_code == 200, found.json()


@pytest.mark.parametrize("tool", ["mlflow", "wandb"])
def test_parameters_are_found_by_queries(ana, tool):
    lr = "0.1" if tool == "mlflow" else 0.1
    parameters = {"lr": lr, "optimizer.lr": lr, "optimizer.name": "adam", "a.b": 1, "a": "x"}
    parameters |= {"layers.0.size": 64, "layers.0.act": "relu"}
    operation, is_new = import_one(ana, tool, parameters)
    assert is_new
    for query in (
        "parameters.lr=0.1", "parameters.lr<0.2", "parameters.optimizer.lr<=0.1",
        "parameters.optimizer.name=adam", "parameters.a=x",
        "parameters.layers.0.size>=64", "parameters.layers.0.act=relu",
    ):  # fmt: skip
        assert [*Operation.objects.filter(condition(query, ana))] == [operation], query
    assert operation.config["parameters"]["a.b"] == 1
    again, is_new = import_one(ana, tool, parameters)
    assert (again, is_new) == (operation, False)


def test_the_digest_of_a_run_is_of_what_was_sent(ana):
    """The digest of a version that stored parameters as they were sent."""
    operation, _ = import_one(ana, "mlflow", {"optimizer.lr": "0.1"})
    assert operation.request_hash == (
        "bb8b831b59c7eef85db4773001e5e9e816fe902b214b453dde03f3d98b18ea61"
    )


@pytest.mark.parametrize(
    "text", ["nan", "NaN", "Infinity", "1e999", "true", "01", "[" * 5000, "9" * 20, ""]
)
def test_texts_of_mlflow_that_are_no_finite_numbers_stay(ana, text):
    operation, _ = import_one(ana, "mlflow", {"value": text, "-3": "-3", "rate": "1e-3"})
    assert operation.config["parameters"] == {"value": text, "-3": -3, "rate": 0.001}


def import_one(owner, tool, parameters):
    """Import a run with one point."""
    run = {
        "tool": tool, "run": "id", "name": "run", "status": "", "tags": [],
        "parameters": parameters, "started_at": BEGAN, "finished_at": None,
    }  # fmt: skip
    return run_imports.import_run(run, io.BytesIO(b'["loss", 1, 0.5, 1700000000]\n'), owner)


def test_a_run_is_imported_once(cli, tmp_path):
    writers.tensorboard(tmp_path / "a")
    (first,), _ = imported(cli, tmp_path)
    (again,), ran = imported(cli, tmp_path)
    assert (again["status"], again["id"], ran.exit_code) == ("known", first["id"], 0)
    assert Operation.objects.count() == 1
    num_points = MetricPoint.objects.count()
    with writers.SummaryWriter(tmp_path / "a") as writer:
        writer.add_scalar("loss/train", 0.0, 99, walltime=writers.BEGAN + 99)
    ran = cli("import-runs", tmp_path)
    assert ran.exit_code == ExitCode.FAILED
    assert f"has changed since then; delete {first['id']} to import it again" in ran.stdout
    assert MetricPoint.objects.count() == num_points


def test_an_import_that_a_crash_left_is_written_anew(cli, tmp_path):
    writers.tensorboard(tmp_path / "a")
    (first,), _ = imported(cli, tmp_path)
    Operation.objects.update(result=None, progressed_at=timezone.now())
    assert "is being imported; try again later" in cli("import-runs", tmp_path).stdout
    Operation.objects.update(progressed_at=timezone.now() - timedelta(minutes=6))
    assert "imported as" in cli("import-runs", tmp_path).stdout
    assert Operation.objects.exclude(result=None).count() == 1
    assert not Operation.objects.filter(pk=first["id"]).exists()


def test_nothing_is_left_of_an_import_that_fails(cli, tmp_path, monkeypatch):
    writers.tensorboard(tmp_path / "a")
    monkeypatch.setattr(run_imports, "_finish", lambda *_: 1 / 0)
    cli("import-runs", tmp_path)
    assert not Operation.objects.exists() and not MetricPoint.objects.exists()


def test_long_curves_are_packed_and_metrics_beyond_the_limit_are_left_out(cli, tmp_path, settings):
    writers.tensorboard(tmp_path / "a", 6000)
    settings.THRESHOLDS = settings.THRESHOLDS.model_copy(update={"metric_names_per_operation": 2})
    (row,), _ = imported(cli, tmp_path)
    operation = Operation.objects.get(pk=row["id"])
    assert operation.result["metrics"] == 2 and operation.result["metrics_left_out"] == 2
    packed = PackedPoints.objects.filter(operation=operation)
    assert operation.result["points"] == 6001
    assert 6001 - PackedPoints.MAX_UNPACKED < sum(each.num_points for each in packed) <= 6001


def test_a_dry_run_and_directories_without_runs(cli, tmp_path):
    writers.tensorboard(tmp_path / "a")
    ran = cli("import-runs", tmp_path, "--dry-run")
    assert ran.exit_code == 0 and "points" in ran.stdout
    assert not Operation.objects.exists()
    (tmp_path / "b").mkdir()
    ran = cli("import-runs", tmp_path / "b")
    assert ran.exit_code == ExitCode.NOT_FOUND
    assert "has no runs of TensorBoard, MLflow or Weights & Biases" in ran.stderr
    ran = cli("import-runs", tmp_path / "c")
    assert ran.exit_code == ExitCode.USAGE and "it is no directory" in ran.stderr
    ran = cli("import-runs", tmp_path, "--from", "csv")
    assert "--from: got 'csv'; allowed: tensorboard, mlflow, wandb" in ran.stderr


def test_it_can_neither_be_submitted_nor_resumed_nor_forked(cli, tmp_path, ana):
    writers.tensorboard(tmp_path / "a")
    (row,), _ = imported(cli, tmp_path)
    operation = Operation.objects.get(pk=row["id"])
    with pytest.raises(ConfigError, match="is not a kind that can be submitted; allowed: "):
        submit(kind=operation.kind, config=operation.config, owner=ana)
    with pytest.raises(NotAllowed):
        services.resume(operation_id=operation.pk, actor=ana)
    with pytest.raises(CheckpointNotFound):
        forking.fork(operation_id=operation.pk, owner=ana)
    assert operation.kind not in KINDS.computed


RUN = {"tool": "mlflow", "run": "x", "name": "x", "started_at": "2024-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('["a", 1, 0.5]', "Line 1 of the points"), ("{", "Line 1"), ('["a", -1, 1, 1]', "Line 1"),
        ('["a", 1.5, 1, 1]', "Line 1"), ('["a", 1, "x", 1]', "Line 1"), ("[" * 900, "Line 1"),
        ('["", 1, 1, 1]', "Line 1"), ('["a", 1, 1, 1e300]', "Line 1"),
        ('["a", 1, 1, "nan"]', "Line 1"),
        ("x" * 2000, "more than 1000 bytes"), (f'["{"n" * 65}", 1, 1, 1]', "Line 1"),
    ],
)  # fmt: skip
def test_lines_that_are_no_points(ana, line, problem):
    api = APIClient()
    api.force_authenticate(ana)
    body = {"run": json.dumps(RUN), "file": SimpleUploadedFile("points", line.encode())}
    response = api.post("/api/v1/operations/import-run", body, format="multipart")
    assert response.status_code == 422, response.json()
    assert problem in response.json()["error"]["message"]
    assert not Operation.objects.exists()
