"""Every dependency is used, and every module that is imported belongs to a dependency.

Used: imported somewhere, or named in the settings as an app or a backend.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.launch.test_environment import installed_for

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
CODE = ("trainops", "apps")
OF_EXTRAS = {  # what below these is imported only where the extra is installed
    "trainops/kinds/loop/lightning": "lightning",
    "trainops/kinds/loop/transformers": "transformers",
    "trainops/sinks/tensorboard.py": "tensorboard",
    "trainops/error_reports.py": "sentry",
    "trainops/tracing.py": "opentelemetry",
    "trainops/documentation/mkdocs_hooks.py": "docs",
}
NOT_INSTALLED = {"_typeshed", "wandb"}  # of type checkers; of an extra that the tests do not have


def name_of(requirement: str) -> str:
    return re.match(r"[A-Za-z0-9._-]+", requirement)[0].lower().replace("_", "-")


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def dependencies() -> list[str]:
    return [name_of(each) for each in project()["dependencies"]]


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


@pytest.mark.whole
@pytest.mark.parametrize("dependency", dependencies())
def test_it_is_used(dependency):
    modules = {
        module
        for module, names in distributions().items()
        if dependency in {name_of(each) for each in names}
    }
    assert modules, f"{dependency} is not installed"
    assert modules & mentioned(), modules


def imports_of(path: Path) -> set[str]:
    """Return the first parts of the modules of others that a file imports, wherever it does."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(node.module.partition(".")[0])
    return found - {*sys.stdlib_module_names, *CODE, *NOT_INSTALLED}


@cache
def modules_with(extra: str) -> set[str]:
    """Return the modules that an installation has, with what its dependencies need in turn."""
    extras = project()["optional-dependencies"]
    installed = installed_for([*project()["dependencies"], *(extras[extra] if extra else ())])
    return {
        module
        for module, names in distributions().items()
        if installed & {name_of(each) for each in names}
    }


@pytest.mark.whole
@pytest.mark.parametrize("extra", ["", *OF_EXTRAS.values()])
def test_what_is_imported_is_installed_without_the_tests(extra):
    """The environment of the tests has more, so that no other test would notice."""
    missing = {
        f"{path.relative_to(ROOT)}: {module}"
        for path in (each for top in CODE for each in (ROOT / top).rglob("*.py"))
        if extra == extra_of(path.relative_to(ROOT))
        for module in imports_of(path) - modules_with(extra)
    }
    assert missing == set()


def extra_of(path: Path) -> str:
    return next((extra for top, extra in OF_EXTRAS.items() if path.is_relative_to(top)), "")
