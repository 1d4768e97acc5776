"""`export-points`: what it refuses."""

import pytest

from tests.operations import rows
from trainops.client import curves
from trainops.client.problems import ExitCode
from trainops.sinks import known

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_unknown_tool_is_refused_with_those_that_are_allowed(cli, tmp_path):
    operation = rows.submitted()
    ran = cli("export-points", operation.pk, "--to", "csv", "--directory", tmp_path / "out")
    assert ran.exit_code == ExitCode.USAGE
    assert "--to: got 'csv'; allowed: tensorboard, mlflow, wandb" in ran.stderr
    assert not (tmp_path / "out").exists()


def test_a_missing_package_is_named_with_its_extra(cli, tmp_path, monkeypatch):
    operation = rows.submitted()
    monkeypatch.setattr(known, "find_spec", lambda _: None)
    ran = cli("export-points", operation.pk, "--to", "tensorboard", "--directory", tmp_path)
    assert ran.exit_code == ExitCode.USAGE
    assert "pip install 'trainops[tensorboard]'" in ran.stderr


def test_a_directory_that_cannot_be_written_is_named(cli, tmp_path):
    operation = rows.submitted()
    (tmp_path / "file").write_text("")
    ran = cli("export-points", operation.pk, "--to", "mlflow", "--directory", tmp_path / "file")
    assert ran.exit_code == ExitCode.USAGE
    assert f"{tmp_path / 'file'}: Not a directory" in ran.stderr


def test_a_resume_meanwhile_is_a_conflict(cli, tmp_path, monkeypatch):
    operation = rows.submitted()
    attempts = iter([(1, 0), (2, 0)])
    monkeypatch.setattr(curves, "_newest_attempt", lambda *_: next(attempts))
    ran = cli("export-points", operation.pk, "--to", "mlflow", "--directory", tmp_path)
    assert ran.exit_code == ExitCode.CONFLICT
    assert f"{operation.pk} was resumed while its points were read; try again" in ran.stderr
    assert not list(tmp_path.rglob("meta.yaml"))
