"""trainops installed from a wheel: what is in it, and what works far from any clone."""

import json
import subprocess
import sys
from importlib.metadata import distribution

import pytest

from tests.thinning import some_of
from tests.wheels import ROOT, environment_with, plain_environment, run, wheel_of, wheel_of_clone
from trainops.scaffold.writing import EXTRAS, FORMS

pytestmark = pytest.mark.slow
LOOK = """
import json, os
import apps, trainops
from importlib.metadata import entry_points
from pathlib import Path
from trainops import paths
os.environ["DJANGO_SETTINGS_MODULE"] = "trainops.settings"
import django
django.setup()
from django.core.management import call_command
from django.db import connection
from django.contrib.staticfiles import finders
from django.template.loader import get_template
call_command("check", verbosity=0)
call_command("makemigrations", check=True, dry_run=True, verbosity=0)
call_command("migrate", verbosity=0)
from trainops.recipes import recipes
from trainops.kind import KINDS
from trainops.documentation import pages
print(json.dumps({
    "clone": paths.CLONE,
    "package": str(paths.PACKAGE),
    "typed": (paths.PACKAGE / "py.typed").exists(),
    "files": sorted(
        str(each.relative_to(paths.PACKAGE))
        for top in (paths.TEMPLATES, paths.STATIC) for each in top.rglob("*") if each.is_file()
    ),
    "template": get_template("base.html").origin.name,
    "style": finders.find("css/trainops.css"),
    "kinds": sorted(KINDS),
    "points": sorted(each.name for each in entry_points(group="trainops.kinds")),
    "recipes": sorted(recipes("training")),
    "pages": sorted(pages.paths()) if pages.markdown("tutorial.md") else [],
    "tables": len(connection.introspection.table_names()),
}))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Return the `bin` of an environment with trainops and a package of recipes, both wheels."""
    directory = tmp_path_factory.mktemp("wheel")
    ours = wheel_of_clone(directory)
    theirs = wheel_of(ROOT / "examples" / "recipe_package", directory)
    return environment_with(directory / "venv", ours, theirs)


@pytest.fixture
def elsewhere(tmp_path):
    """An empty directory, and an environment whose user data directory is in it."""
    return {"cwd": tmp_path, "env": plain_environment(XDG_DATA_HOME=str(tmp_path / "data"))}


def test_the_wheel_holds_all_that_a_server_needs(installed, elsewhere):
    found = json.loads(run(installed / "python", "-c", LOOK, **elsewhere).splitlines()[-1])
    package = str(installed.parent)
    assert found["clone"] is None and found["package"].startswith(package)
    assert found["template"].startswith(package) and found["style"].startswith(package)
    assert found["typed"]
    assert found["files"] == sorted(
        str(each.relative_to(ROOT))
        for top in ("static", "templates")
        for each in (ROOT / top).rglob("*")
        if each.is_file()
    )
    kinds = ["backtest", "federated", "loop", "rl", "tracked", "training"]
    assert found["kinds"] == found["points"] == kinds
    assert {"digits", "iris"} <= set(found["recipes"])  # iris: of the package beside it
    assert {"index.md", "tutorial.md", "architecture.md"} <= set(found["pages"])
    assert found["tables"] > 30
    data = elsewhere["cwd"] / "data" / "trainops"
    assert (data / "trainops.sqlite3").exists()


def test_the_command_names_itself_and_the_users_data_directory(installed, elsewhere):
    assert "Usage: trainops COMMAND" in run(installed / "trainops", "--help", **elsewhere)
    shown = " ".join(run(installed / "trainops", "up", "--help", **elsewhere).split())
    assert shown.startswith("usage: trainops up")
    assert "data/trainops" in shown.replace(" ", "")


@pytest.mark.parametrize("command", ["test", "bench", "chaos", "install"])
def test_what_needs_a_clone_says_so(installed, elsewhere, command):
    done = subprocess.run(
        [installed / "trainops", command], **elsewhere, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"`trainops {command}` needs a clone of the repository")


def test_the_library_runs_a_job_without_a_server(installed, elsewhere):
    script = ROOT / "examples" / "library.py"
    first = run(installed / "python", script, "saved", "1", **elsewhere)
    assert first.startswith("starts at step 0 (exact)\nsaved a0000-s0000000045-final\nSucceeded(")
    again = run(installed / "python", script, "saved", "1", **elsewhere)
    assert again.startswith("starts at step 45 (exact)\n")
    assert again.splitlines()[-1] == first.splitlines()[-1]


@pytest.mark.exhaustive
@pytest.mark.parametrize("form", some_of(sorted({*FORMS} - EXTRAS), every=3))
def test_a_new_package_is_installed_and_checked_without_a_server(installed, elsewhere, form):
    run(installed / "trainops", "recipes", "new", "mine", "--form", form, **elsewhere)
    package = wheel_of(elsewhere["cwd"] / "mine", elsewhere["cwd"])
    site = elsewhere["cwd"] / "site"
    run(
        sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", site, package
    )
    environment = {**elsewhere["env"], "PYTHONPATH": str(site)}
    checked = run(
        installed / "trainops", "recipes", "check", "mine", "--max-steps", "6", "--no-cost",
        cwd=elsewhere["cwd"], env=environment,
    )  # fmt: skip
    assert "Exact: every run" in checked


def test_this_environment_can_build_it():
    assert int(distribution("setuptools").version.split(".")[0]) >= 77
