"""Every dependency is used: imported somewhere, or named in the settings as an app or a backend."""

import ast
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
CODE = ("trainops", "apps")


def name_of(requirement: str) -> str:
    return re.match(r"[A-Za-z0-9._-]+", requirement)[0].lower().replace("_", "-")


def dependencies() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [name_of(each) for each in project["dependencies"]]


@cache
def mentioned() -> set[str]:
    """Return the first part of every module that code imports or that a string names."""
    found = set()
    for path in (each for top in CODE for each in (ROOT / top).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {each.name.partition(".")[0] for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.partition(".")[0])
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value.partition(".")[0])
    return found


@cache
def distributions() -> Mapping[str, list[str]]:
    """Return the distributions of each installed module: reads the file list of every package."""
    return packages_distributions()


@pytest.mark.parametrize("dependency", dependencies())
def test_it_is_used(dependency):
    modules = {
        module
        for module, names in distributions().items()
        if dependency in {name_of(each) for each in names}
    }
    assert modules, f"{dependency} is not installed"
    assert modules & mentioned(), modules
