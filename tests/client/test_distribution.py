"""The wheel trainops-client: built from the modules of this clone, used without the server."""

import shutil
import subprocess
import tomllib

import pytest

from tests.wheels import ROOT, environment_with, plain_environment, run, wheel_of
from trainops.version import VERSION


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    directory = tmp_path_factory.mktemp("client")
    unwanted = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "trainops", directory / "trainops", symlinks=True, ignore=unwanted)
    wheel = wheel_of(directory / "trainops" / "client", directory)
    shutil.rmtree(directory / "trainops")
    return environment_with(directory / "environment", wheel)


@pytest.mark.slow
def test_the_client_is_installed_without_the_server(installed, tmp_path):
    options = {"cwd": tmp_path, "env": plain_environment(TRAINOPS_DATA_DIR=str(tmp_path))}
    assert run(installed / "trainops", "--version", **options) == f"trainops {VERSION}\n"
    assert "fork" in run(installed / "trainops", "--help", **options)
    program = (
        "from trainops.client import AsyncClient, Client; import importlib.util as u;"
        "print(u.find_spec('trainops.settings'), u.find_spec('trainops.runtime'))"
    )
    assert run(installed / "python", "-c", program, **options) == "None None\n"
    command = [installed / "trainops", "recipes", "new", "x"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert ran.returncode == 2
    assert ran.stderr == "error: This needs the package trainops; here is only trainops-client.\n"


def test_client_and_server_are_of_one_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION
