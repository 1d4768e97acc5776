"""Packages that `recipes new` writes: complete, trained as written, checked by their own test."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from tests.thinning import some_of
from trainops.checking.check import check_recipe
from trainops.cli.app import build
from trainops.kind import KINDS
from trainops.recipes import Recipe, recipes
from trainops.scaffold.writing import FORMS, TEMPLATES, NotWritten, write_package

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Write a package of a form, and register its recipe as an installation does."""

    def write(form, name):
        directory = tmp_path / name
        write_package(name, form, tmp_path)
        project = tomllib.loads((directory / "pyproject.toml").read_text())["project"]
        path = project["entry-points"]["trainops.recipes"][name]
        monkeypatch.syspath_prepend(directory / "src")
        monkeypatch.setenv("TRAINOPS_RECIPES", path)
        return directory

    return write


def test_the_forms_are_the_folders_of_templates():
    assert FORMS == ("ingredients", "lightning", "loop", "module", "transformers")
    assert all((TEMPLATES / each / "README.md.txt").is_file() for each in FORMS)


@pytest.mark.parametrize("form", FORMS)
def test_a_package_has_a_recipe_an_operation_a_test_and_a_short_readme(written, form):
    directory = written(form, f"written_{form}")
    recipe = recipes()[f"written_{form}"]
    assert isinstance(recipe, Recipe)
    operation = yaml.safe_load((directory / f"{recipe.name}.yaml").read_text())
    assert operation["kind"] == recipe.kind
    KINDS[recipe.kind].parse_config(operation["config"])
    KINDS[recipe.kind].parse_config(recipe.example)
    assert len((directory / "README.md").read_text().splitlines()) <= 12
    assert (directory / "tests" / f"test_{recipe.name}.py").is_file()
    files = [each for each in directory.rglob("*") if "__pycache__" not in each.parts]
    assert not [each for each in files if "$" in each.name + _text(each)]


def _text(path):
    return path.read_text() if path.is_file() else ""


@pytest.mark.parametrize("form", FORMS)
def test_a_package_passes_ruff(written, form):
    directory = written(form, f"linted_{form}")
    for command in (["check", "--ignore", "S101"], ["format", "--check"]):
        subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--config", ROOT / "pyproject.toml",
             "--config", "lint.isort.known-first-party=['trainops']", directory],
            check=True,
        )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_a_package_trains_as_written(written, form):
    directory = written(form, f"trained_{form}")
    operation = yaml.safe_load((directory / f"trained_{form}.yaml").read_text())
    kind = KINDS[operation["kind"]]
    job = kind.make_job(kind.parse_config(operation["config"]))
    while job.step < job.total_steps:
        job.advance()
    final = job.result()["final"]
    assert final.get("val_accuracy", final.get("eval_accuracy")) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("form", some_of(FORMS, every=len(FORMS)))
def test_the_own_test_of_a_package_passes(written, form):
    """Also in a clone, whose settings for pytest are for its own tests."""
    directory = written(form, f"checked_{form}")
    settings = '[tool.pytest.ini_options]\naddopts = "--strict-config"\nnothing_known = "1"\n'
    (directory.parent / "pyproject.toml").write_text(settings)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", directory],
        cwd=directory.parent,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(directory / "src")])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_loop_is_exact_with_two_processes(written, monkeypatch):
    directory = written("loop", "ranked_loop")
    monkeypatch.setenv("PYTHONPATH", str(directory / "src"))
    report = check_recipe("ranked_loop", processes=2, max_steps=6, measures_cost=False)
    assert report.is_exact and not report.warnings, str(report)


@pytest.mark.parametrize(
    ("name", "form", "message"),
    [
        ("Upper", "loop", "name: got 'Upper'; allowed: a lower-case Python name"),
        ("a-b", "loop", "name: got 'a-b'; allowed"),
        ("../up", "loop", "name: got '../up'; allowed"),
        ("class", "loop", "name: got 'class'; allowed"),
        ("a" * 41, "loop", "at most 40 characters"),
        ("digits", "loop", "a recipe of this name is registered"),
        ("torch", "loop", "a module of this name is installed"),
        (
            "fine",
            "knots",
            "form: got 'knots'; allowed: ingredients, lightning, loop, module, transformers",
        ),
        ("there", "loop", "there exists"),
    ],
)
def test_wrong_names_and_existing_directories_are_refused(tmp_path, name, form, message):
    (tmp_path / "there").mkdir()
    with pytest.raises(NotWritten, match=message):
        write_package(name, form, tmp_path)
    assert [each.name for each in tmp_path.rglob("*")] == ["there"]


def test_nothing_is_left_of_a_package_that_cannot_be_written(tmp_path, monkeypatch):
    def full(self, *_):
        raise OSError(28, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(NotWritten, match="No space left"):
        write_package("unwritten", "loop", tmp_path)
    assert not any(tmp_path.iterdir())


def test_the_command_prints_the_files_and_the_next_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(build(), ["recipes", "new", "commanded", "--form", "loop"])
    assert ran.exit_code == 0, ran.stderr
    assert "commanded/src/commanded/loop.py" in ran.stdout.splitlines()
    for part in ("install --no-deps -e commanded", "recipes check commanded",
                 "run commanded/commanded.yaml"):  # fmt: skip
        assert part in ran.stderr
    again = CliRunner().invoke(build(), ["recipes", "new", "commanded"])
    assert again.exit_code == 2 and "commanded exists" in again.stderr
